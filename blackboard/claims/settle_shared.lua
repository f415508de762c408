-- Settles an effect that is claimed across threads, or marks its outcome unknown. Whoever is not its owner must wait for
-- its lease to lapse.
-- KEYS: effect
-- ARGV: owner, fence, state, op, body, keep_ms
-- Returns: {"OK"} | {"OVER", owner, fence, attempt, state} | {"BUSY", owner, remaining_ms} | {"ABSENT"}
-- luacheck: read globals guard
local owner, fence, state, op, body, keep = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local stored = redis.call('HMGET', KEYS[1], 'state', 'fence', 'attempt', 'owner', 'lease_until', 'op')
local now = guard.now()
if not stored[1] then
  return {'ABSENT'}
end
local open = stored[1] == 'running' or stored[1] == 'unknown'
if not open and stored[6] == op then
  return {'OK'}
end
if not open or stored[2] ~= fence then
  return {'OVER', stored[4], stored[2], stored[3], stored[1]}
end
if stored[4] ~= owner and stored[1] == 'running' and tonumber(stored[5]) > now then
  return {'BUSY', stored[4], math.ceil((tonumber(stored[5]) - now) / 1000)}
end

if state == 'unknown' then
  redis.call('HSET', KEYS[1], 'state', state)
  return {'OK'}
end
redis.call('HSET', KEYS[1], 'state', state, 'owner', owner, 'op', op, 'body', body, 'settled', guard.text(now))
redis.call('PEXPIRE', KEYS[1], keep)
return {'OK'}
