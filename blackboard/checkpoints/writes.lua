-- Store pending writes against a checkpoint, which may not have arrived yet.
-- KEYS: meta, lock, latest, checkpoint, writes, parts
-- ARGV: fence, incarnation, idle_ms, interrupted, reserve_ms, part, field, value, overwrite...
-- Returns: {"OK", stored} | {"GONE", why} | {"REMOVING", incarnation} | {"STATUS", status} | {"FENCED", fence, 1, ""} | {"HELD", lock, ms}
--   | {"REGRESSED", what}
--
-- interrupted is the id of the checkpoint if the thread waits for somebody from now on: then it does not expire for being idle until the
-- next checkpoint of its root.

local fence, incarnation, idle_ms = ARGV[1], ARGV[2], ARGV[3]
local interrupted, reserve_ms, part = ARGV[4], ARGV[5], ARGV[6]
local now = now_us()
local m = read_meta(KEYS[1], now)
local refused = judge_life(m, redis.call('GET', KEYS[3]), incarnation, false)
if refused then return refused end
if closed(m) then return {'STATUS', m.status} end
local stands
refused, stands = judge_fence(m, fence, KEYS[2], now)
if refused then
  if refused[1] == 'FENCED' then return {'FENCED', m.fence, 1, ''} end
  return refused
end
redis.call('HLEN', KEYS[5])
redis.call('SCARD', KEYS[6])

local stored = 0
for i = 7, #ARGV, 3 do
  if ARGV[i + 2] == '1' then
    redis.call('HSET', KEYS[5], ARGV[i], ARGV[i + 1])
    stored = stored + 1
  else
    stored = stored + redis.call('HSETNX', KEYS[5], ARGV[i], ARGV[i + 1])
  end
end
if redis.call('EXISTS', KEYS[4]) == 0 then redis.call('SADD', KEYS[6], part) end
if not m.status then
  redis.call('HSET', KEYS[1], 'status', 'new', 'fence', now)
elseif stands ~= m.fence then
  redis.call('HSET', KEYS[1], 'fence', stands)
end
if interrupted ~= '' then redis.call('HSET', KEYS[1], 'interrupted', interrupted) end
if not m.incarnation then
  -- Nothing is committed yet: what was reserved goes by itself unless a first checkpoint comes.
  redis.call('PEXPIRE', KEYS[1], reserve_ms)
  redis.call('PEXPIRE', KEYS[5], reserve_ms)
  redis.call('PEXPIRE', KEYS[6], reserve_ms)
elseif interrupted ~= '' or m.interrupted then
  if idle_ms ~= '' and m.status == 'running' and m.expires then redis.call('HDEL', KEYS[1], 'expires') end
elseif idle_ms ~= '' and m.status == 'running' then
  redis.call('HSET', KEYS[1], 'expires', whole(math.floor(tonumber(now) / 1000) + tonumber(idle_ms)))
end
if fence == '' and m.holder then redis.call('HDEL', KEYS[1], 'holder') end
return {'OK', stored}
