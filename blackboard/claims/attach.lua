-- Notes under which reference the outside world knows an open effect of a thread.
-- KEYS: meta, effects, effects_open, latest, history
-- ARGV: fence, incarnation, key, expect, external_ref
-- Returns: {"OK"} | {"OVER", owner, fence, attempt, state} | {"LOST", holder, fence} | {"REGRESSED"} | {"GONE", why} | {"CORRUPT"}
-- luacheck: read globals guard records
local key, expect = ARGV[3], ARGV[4]
local refusal = guard.thread(KEYS[1], KEYS[4], ARGV[1], ARGV[2])
if refusal then
  return refusal
end
local open, settled, corrupt = records.read(KEYS[3], KEYS[2], KEYS[4], KEYS[5], key)
if corrupt then
  return corrupt
end

local last = settled or open
if not last then
  return {'REGRESSED'}
end
if settled or string.sub(records.open(open), 1, #expect) ~= expect then
  return {'OVER', last.owner, last.fence, last.attempt, last.state}
end
open.external_ref = ARGV[5]
redis.call('HSET', KEYS[3], key, records.open(open))
return {'OK'}
