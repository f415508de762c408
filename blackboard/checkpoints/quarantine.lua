-- Take a thread out of everybody's hands, or give it back.
-- KEYS: meta, lock, latest
-- ARGV: fence, incarnation, reason
-- Returns: {"OK"} | {"GONE", why} | {"REMOVING", incarnation} | {"STATUS", status} | {"FENCED", fence, 1, ""} | {"HELD", lock, ms}
--   | {"REGRESSED", what}
--
-- With a reason the thread is quarantined; without one it runs again, and its takeovers are counted anew.

local fence, incarnation, reason = ARGV[1], ARGV[2], ARGV[3]
local now = now_us()
local m = read_meta(KEYS[1], now)
local refused = judge_life(m, redis.call('GET', KEYS[3]), incarnation, false)
if refused then return refused end
if not m.incarnation then return {'GONE', m.status or 'missing'} end
if m.status == 'finished' or m.status == 'failed' then return {'STATUS', m.status} end
refused = judge_fence(m, fence, KEYS[2], now)
if refused then
  if refused[1] == 'FENCED' then return {'FENCED', m.fence, 1, ''} end
  return refused
end
if reason ~= '' then
  redis.call('HSET', KEYS[1], 'status', 'quarantined', 'reason', reason, 'updated', now)
elseif m.status == 'quarantined' then
  redis.call('HSET', KEYS[1], 'status', 'running', 'takeovers', '0', 'updated', now)
  redis.call('HDEL', KEYS[1], 'reason')
end
return {'OK'}
