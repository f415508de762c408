-- Begins an effect of a thread, or says why it must not run now.
-- KEYS: meta, lock, effects, effects_open, latest, history
-- ARGV: owner, fence, incarnation, key, semantics, fingerprint, op
-- Returns: {"RUN", attempt, incarnation} | {"DONE", attempt, body} | {"FAILED", attempt, body, state} | {"BUSY", owner, remaining_ms}
--   | {"UNKNOWN", attempt, started_us, external_ref, fence, owner} | {"MISMATCH", fingerprint}
--   | {"LOST", holder, fence} | {"REGRESSED"} | {"GONE", why} | {"CLOSED", status} | {"CORRUPT"}
-- luacheck: read globals guard records
local owner, fence, key, semantics, fingerprint, op = ARGV[1], ARGV[2], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local refusal, incarnation, status = guard.thread(KEYS[1], KEYS[5], fence, ARGV[3])
if refusal then
  return refusal
end
local open, settled, corrupt = records.read(KEYS[4], KEYS[3], KEYS[5], KEYS[6], key)
if corrupt then
  return corrupt
end

local last = settled or open
if last and last.fingerprint ~= fingerprint then
  return {'MISMATCH', last.fingerprint}
end
if settled and settled.state ~= 'retry' then
  if open then
    redis.call('HDEL', KEYS[4], key)
  end
  if settled.state == 'done' then
    return {'DONE', settled.attempt, settled.body}
  end
  return {'FAILED', settled.attempt, settled.body, settled.state}
end
if settled and settled.begun == op then
  return {'RUN', settled.attempt, incarnation}
end
if open and not settled then
  if open.op == op then
    return {'RUN', open.attempt, incarnation}
  end
  if open.fence == fence and open.state == 'running' then
    return {'BUSY', open.owner, math.max(redis.call('PTTL', KEYS[2]), 0)}
  end
  if semantics == 'at-most-once' or open.semantics == 'at-most-once' then
    return {'UNKNOWN', open.attempt, open.started, open.external_ref, open.fence, open.owner}
  end
end

if status == 'finished' or status == 'failed' then
  return {'CLOSED', status}
end
local attempt = guard.text(last and tonumber(last.attempt) + 1 or 1)
redis.call('HSET', KEYS[4], key, records.open({
  fence = fence, owner = owner, attempt = attempt, started = guard.text(guard.now()), semantics = semantics,
  fingerprint = fingerprint, external_ref = '', op = op, state = 'running',
}))
if settled then
  redis.call('HDEL', KEYS[3], key)
end
return {'RUN', attempt, incarnation}
