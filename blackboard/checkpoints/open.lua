-- Open a thread that was copied to a new id.
-- KEYS: meta, latest
-- ARGV: copy, latest, sequence, parent, forked_at
-- Returns: {"OK", incarnation} | {"MOVED"}

local now = now_us()
if redis.call('HGET', KEYS[1], 'copying') ~= ARGV[1] then
  -- A repetition after a lost reply finds its own work done.
  if redis.call('HGET', KEYS[1], 'copied') == ARGV[1] then return {'OK', redis.call('HGET', KEYS[1], 'incarnation')} end
  return {'MOVED'}
end
redis.call('SET', KEYS[2], ARGV[2])
redis.call('HSET', KEYS[1], 'status', 'running', 'incarnation', now, 'created', now, 'updated', now, 'sequence', ARGV[3],
  'takeovers', '0', 'parent', ARGV[4], 'forked_at', ARGV[5], 'copied', ARGV[1])
redis.call('HDEL', KEYS[1], 'copying', 'pruned')
return {'OK', now}
