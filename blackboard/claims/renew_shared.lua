-- Extends the lease of an effect that is claimed across threads.
-- KEYS: effect
-- ARGV: owner, fence, ttl_ms
-- Returns: {"OK"} | {"OVER", owner, fence, attempt, state} | {"ABSENT"}
-- luacheck: read globals guard
local stored = redis.call('HMGET', KEYS[1], 'state', 'fence', 'attempt', 'owner', 'lease_until')
local now = guard.now()
if not stored[1] then
  return {'ABSENT'}
end
if stored[1] ~= 'running' or stored[2] ~= ARGV[2] or stored[4] ~= ARGV[1] or tonumber(stored[5]) <= now then
  return {'OVER', stored[4], stored[2], stored[3], stored[1]}
end
redis.call('HSET', KEYS[1], 'lease_until', guard.text(now + tonumber(ARGV[3]) * 1000))
return {'OK'}
