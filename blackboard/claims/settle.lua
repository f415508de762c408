-- Settles an open effect of a thread, or marks its outcome unknown. `expect` is the start of the open record it is about.
-- KEYS: meta, effects, effects_open, latest, history
-- ARGV: owner, fence, incarnation, key, expect, state, op, body
-- Returns: {"OK"} | {"OVER", owner, fence, attempt, state} | {"LOST", holder, fence, state} | {"REGRESSED"} | {"GONE", why} | {"CORRUPT"}
-- luacheck: read globals guard records
local owner, fence, key, expect = ARGV[1], ARGV[2], ARGV[4], ARGV[5]
local state, op, body = ARGV[6], ARGV[7], ARGV[8]
local refusal = guard.thread(KEYS[1], KEYS[4], fence, ARGV[3])
if refusal and refusal[1] ~= 'LOST' then
  return refusal
end
local open, settled, corrupt = records.read(KEYS[3], KEYS[2], KEYS[4], KEYS[5], key)
if corrupt then
  return corrupt
end

local last = settled or open
if refusal then
  refusal[4] = last and last.state or ''
  return refusal
end
if settled and settled.op == op then
  return {'OK'}
end
if not last then
  return {'REGRESSED'}
end
if settled or string.sub(records.open(open), 1, #expect) ~= expect then
  return {'OVER', last.owner, last.fence, last.attempt, last.state}
end

if state == 'unknown' then
  open.state = state
  redis.call('HSET', KEYS[3], key, records.open(open))
  return {'OK'}
end
redis.call('HSET', KEYS[2], key, records.settled({
  checkpoint = '', settled = guard.text(guard.now()), state = state, attempt = open.attempt,
  fingerprint = open.fingerprint, op = op, fence = fence, owner = owner,
  begun = open.op, body = body,
}))
redis.call('HDEL', KEYS[3], key)
return {'OK'}
