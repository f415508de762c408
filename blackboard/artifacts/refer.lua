-- Enters who refers to an artifact, which restarts its grace; to be called before what refers to it is committed.
-- KEYS: head, refs
-- ARGV: owner
-- Returns: {"OK"} | {"ABSENT"}
-- luacheck: read globals guard
if redis.call('EXISTS', KEYS[1]) == 0 then
  return {'ABSENT'}
end
local now = guard.text(guard.now())
redis.call('HSET', KEYS[2], ARGV[1], now)
redis.call('HSET', KEYS[1], 'touched', now)
redis.call('HINCRBY', KEYS[1], 'revision', 1)
redis.call('HDEL', KEYS[1], 'marked')
return {'OK'}
