-- Extends the lease of a path that is still held; needs no memory, so it works on a full server.
-- KEYS: head, lock
-- ARGV: owner, fence, ttl_ms
-- Returns: {"OK"} | {"LOST", holder, fence} | {"REGRESSED"}
-- luacheck: read globals guard
local owner, fence, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3])
local stored = redis.call('HGET', KEYS[1], 'fence')
local lock = redis.call('GET', KEYS[2])
local _, holder = guard.split(lock)
local refusal = guard.fence(fence, stored, holder)

if refusal then
  return refusal
end
if lock ~= fence .. ':' .. owner then
  return {'LOST', '', stored}
end
redis.call('PEXPIRE', KEYS[2], ttl)
return {'OK'}
