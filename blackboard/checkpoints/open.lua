-- Open a thread that was copied or imported to a new id.
-- KEYS: meta, latest
-- ARGV: copy, latest or empty, fact...
-- Returns: {"OK", incarnation} | {"MOVED"}
--
-- The facts are fields of meta and their values in turn: sequence, and status unless it is running.

local now = now_us()
if redis.call('HGET', KEYS[1], 'copying') ~= ARGV[1] then
  -- A repetition after a lost reply finds its own work done.
  if redis.call('HGET', KEYS[1], 'copied') == ARGV[1] then return {'OK', redis.call('HGET', KEYS[1], 'incarnation')} end
  return {'MOVED'}
end
if ARGV[2] ~= '' then redis.call('SET', KEYS[2], ARGV[2]) end
redis.call('HSET', KEYS[1], 'status', 'running', 'incarnation', now, 'created', now, 'updated', now, 'takeovers', '0',
  'copied', ARGV[1], unpack(ARGV, 3))
redis.call('HDEL', KEYS[1], 'copying', 'pruned')
return {'OK', now}
