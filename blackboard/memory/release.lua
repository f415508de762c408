-- Gives the lease of a path back; needs no memory, so it works on a full server. The fence stays.
-- KEYS: head, lock
-- ARGV: owner, fence (empty: whatever this owner was granted)
-- Returns: {"OK"} | {"LOST", holder, fence} | {"REGRESSED"}
-- luacheck: read globals guard
local owner, fence = ARGV[1], ARGV[2]
local stored = redis.call('HGET', KEYS[1], 'fence')
local lock = redis.call('GET', KEYS[2])
local locked, holder = guard.split(lock)
local refusal = fence ~= '' and guard.fence(fence, stored, holder)

if refusal then
  return refusal
end
if holder == owner and (fence == '' or locked == fence) then
  redis.call('DEL', KEYS[2])
end
return {'OK'}
