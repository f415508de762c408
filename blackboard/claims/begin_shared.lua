-- Begins an effect that is claimed across threads, or says why it must not run now.
-- KEYS: effect
-- ARGV: owner, ttl_ms, semantics, fingerprint, op
-- Returns: {"RUN", attempt, fence} | {"DONE", attempt, body} | {"FAILED", attempt, body, state} | {"BUSY", owner, remaining_ms}
--   | {"UNKNOWN", attempt, started_us, external_ref, fence, owner} | {"MISMATCH", fingerprint}
-- luacheck: read globals guard
local owner, ttl, semantics, fingerprint, op = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
local now = guard.now()
local stored = redis.call('HMGET', KEYS[1], 'state', 'fence', 'attempt', 'owner', 'lease_until', 'semantics', 'fingerprint', 'op',
  'started', 'external_ref', 'body', 'begun')
local state, fence, attempt = stored[1], stored[2] or '0', stored[3] or '0'
local until_us = guard.text(now + ttl * 1000)

if state and stored[7] ~= fingerprint then
  return {'MISMATCH', stored[7]}
end
if state == 'done' then
  return {'DONE', attempt, stored[11]}
end
if state == 'failed' or state == 'abandoned' then
  return {'FAILED', attempt, stored[11], state}
end
if state == 'running' and stored[8] == op then
  redis.call('HSET', KEYS[1], 'lease_until', until_us)
  return {'RUN', attempt, fence}
end
if state == 'retry' and stored[12] == op then
  return {'RUN', attempt, fence}
end
if state == 'running' and tonumber(stored[5]) > now then
  return {'BUSY', stored[4], math.ceil((tonumber(stored[5]) - now) / 1000)}
end
if state and state ~= 'retry' and (semantics == 'at-most-once' or stored[6] == 'at-most-once') then
  return {'UNKNOWN', attempt, stored[9], stored[10], fence, stored[4]}
end

fence, attempt = guard.text(math.max(tonumber(fence) + 1, now)), guard.text(tonumber(attempt) + 1)
redis.call('PERSIST', KEYS[1])
redis.call('HSET', KEYS[1], 'state', 'running', 'fence', fence, 'attempt', attempt, 'owner', owner, 'lease_until', until_us,
  'semantics', semantics, 'fingerprint', fingerprint, 'op', op, 'begun', op, 'started', guard.text(now), 'external_ref', '', 'body', '')
return {'RUN', attempt, fence}
