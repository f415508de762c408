-- Says whether an artifact is stored, and restarts the grace of one that is.
-- KEYS: head
-- ARGV: none
-- Returns: {"OK", head} | {"ABSENT"}
-- luacheck: read globals guard
if redis.call('EXISTS', KEYS[1]) == 0 then
  return {'ABSENT'}
end
redis.call('HSET', KEYS[1], 'touched', guard.text(guard.now()))
redis.call('HINCRBY', KEYS[1], 'revision', 1)
redis.call('HDEL', KEYS[1], 'marked')
return {'OK', redis.call('HGETALL', KEYS[1])}
