-- Extends a lease that is still held; needs no memory, so it works on a full server.
-- KEYS: meta, lock
-- ARGV: owner, fence, ttl_ms
-- Returns: {"OK"} | {"LOST", holder, fence} | {"REGRESSED"} | {"GONE"}
-- luacheck: read globals guard
local owner, fence, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3])
local meta = redis.call('HMGET', KEYS[1], 'status', 'fence', 'holder', 'expires')
local lock = redis.call('GET', KEYS[2])
local refusal = guard.fence(fence, meta[2], meta[3])

if refusal then
  return refusal
end
if guard.expired(meta[4], guard.now()) then
  return {'GONE'}
end
if lock ~= fence .. ':' .. owner then
  return {'LOST', '', meta[2]}
end
redis.call('PEXPIRE', KEYS[2], ttl)
if (meta[1] == 'new' or meta[1] == 'deleted') and redis.call('PTTL', KEYS[1]) < guard.reserved_ms then
  redis.call('PEXPIRE', KEYS[1], guard.reserved_ms + ttl)
end
return {'OK'}
