-- Makes an owner the one who tends a path, or extends the lease for the owner who has it.
-- KEYS: head, lock
-- ARGV: owner, ttl_ms
-- Returns: {"OK", fence, incarnation} | {"HELD", owner, remaining_ms} | {"REGRESSED"}
-- luacheck: read globals guard
local owner, ttl = ARGV[1], tonumber(ARGV[2])
local head = redis.call('HMGET', KEYS[1], 'fence', 'incarnation')
local stored, incarnation = head[1], head[2] or ''
local locked, holder = guard.split(redis.call('GET', KEYS[2]))

if locked and tonumber(locked) > tonumber(stored or '0') then
  return {'REGRESSED'}
end
if locked and locked == stored then
  if holder ~= owner then
    return {'HELD', holder, redis.call('PTTL', KEYS[2])}
  end
  redis.call('PEXPIRE', KEYS[2], ttl)
  return {'OK', stored, incarnation}
end
local fence = guard.text(math.max(tonumber(stored or '0') + 1, guard.now()))
redis.call('HSET', KEYS[1], 'fence', fence)
redis.call('SET', KEYS[2], fence .. ':' .. owner, 'PX', ttl)
return {'OK', fence, incarnation}
