-- Gives a lease back; needs no memory, so it works on a full server. The fence stays.
-- KEYS: meta, lock
-- ARGV: owner, fence
-- Returns: {"OK"} | {"LOST", holder, fence} | {"REGRESSED"}
-- luacheck: read globals guard
local owner, fence = ARGV[1], ARGV[2]
local meta = redis.call('HMGET', KEYS[1], 'fence', 'holder')
local lock = redis.call('GET', KEYS[2])
local refusal = guard.fence(fence, meta[1], meta[2])

if refusal then
  return refusal
end
if lock == fence .. ':' .. owner then
  redis.call('DEL', KEYS[2])
end
if meta[2] == owner then
  redis.call('HDEL', KEYS[1], 'holder')
end
return {'OK'}
