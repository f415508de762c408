-- Notes under which reference the outside world knows an open effect that is claimed across threads.
-- KEYS: effect
-- ARGV: owner, fence, external_ref
-- Returns: {"OK"} | {"OVER", owner, fence, attempt, state} | {"ABSENT"}
local stored = redis.call('HMGET', KEYS[1], 'state', 'fence', 'attempt', 'owner')
if not stored[1] then
  return {'ABSENT'}
end
if (stored[1] ~= 'running' and stored[1] ~= 'unknown') or stored[2] ~= ARGV[2] or stored[4] ~= ARGV[1] then
  return {'OVER', stored[4], stored[2], stored[3], stored[1]}
end
redis.call('HSET', KEYS[1], 'external_ref', ARGV[3])
return {'OK'}
