-- Put a signal or a note into the inbox of a thread, from outside.
-- KEYS: meta, latest, inbox, answers, ops
-- ARGV: kind, name, key, op, value, keep_ms, most
-- Returns: {"ACCEPTED", status} | {"ALREADY", id} | {"GONE", why} | {"FULL", length} | {"REGRESSED", what}
--
-- Of a signal's name the first answer wins, until the thread waits for that name again. key is what makes a repetition of the
-- caller's recognisable for ever, op a repetition after a lost reply.

local kind, name, key, op, value = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local now = now_us()
local m = read_meta(KEYS[1], now)
if not m.status then
  if redis.call('EXISTS', KEYS[2]) == 1 then return {'REGRESSED', 'meta'} end
  return {'GONE', 'missing'}
end
if not m.incarnation or m.expired then return {'GONE', m.expired and 'expired' or m.status} end
if m.status == 'finished' or m.status == 'failed' then return {'GONE', m.status} end
if redis.call('ZSCORE', KEYS[5], 'signal:' .. op) then return {'ACCEPTED', m.status} end
local known = key ~= '' and redis.call('HGET', KEYS[4], 'k:' .. key)
if known then return {'ALREADY', known} end
local answered = kind == 'signal' and redis.call('HGET', KEYS[4], 'n:' .. name)
if answered then return {'ALREADY', answered} end
redis.call('HLEN', KEYS[4])
local length = redis.call('XLEN', KEYS[3])
if length >= tonumber(ARGV[7]) then return {'FULL', length} end

local id = redis.call('XADD', KEYS[3], '*', 'kind', kind, 'name', name, 'value', value)
if kind == 'signal' then redis.call('HSET', KEYS[4], 'n:' .. name, id) end
if key ~= '' then redis.call('HSET', KEYS[4], 'k:' .. key, id) end
redis.call('ZADD', KEYS[5], now, 'signal:' .. op)
local keep_ms = tonumber(ARGV[6])
if redis.call('PTTL', KEYS[5]) < keep_ms then
  -- Owners that are dead stand here too, for a minute.
  redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf', '(' .. whole(tonumber(now) - math.max(keep_ms, 60000) * 1000))
  redis.call('PEXPIRE', KEYS[5], 2 * keep_ms)
end
return {'ACCEPTED', m.status}
