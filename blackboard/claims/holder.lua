-- Reads who drives a thread: the live lease, or the grant that lapsed without a release (remaining_ms 0).
-- KEYS: meta, lock
-- ARGV:
-- Returns: {"HELD", owner, fence, remaining_ms} | {"FREE"}
-- luacheck: read globals guard
local meta = redis.call('HMGET', KEYS[1], 'fence', 'holder')
local fence, owner = guard.split(redis.call('GET', KEYS[2]))
if fence and fence == meta[1] then
  return {'HELD', owner, fence, redis.call('PTTL', KEYS[2])}
end
if meta[2] then
  return {'HELD', meta[2], meta[1], 0}
end
return {'FREE'}
