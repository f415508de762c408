-- Finish or fail a thread without a checkpoint.
-- KEYS: meta, lock, latest, effects_open, inbox
-- ARGV: fence, incarnation, status, ttl_ms, drop
-- Returns: {"OK", incarnation, expires} | {"GONE", why} | {"REMOVING", incarnation} | {"STATUS", status} | {"FENCED", fence, 1, ""}
--   | {"HELD", lock, ms} | {"UNRESOLVED", key...} | {"UNREAD", number} | {"REGRESSED", what}

local fence, incarnation, status, ttl_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local now = now_us()
local m = read_meta(KEYS[1], now)
local refused = judge_life(m, redis.call('GET', KEYS[3]), incarnation, false)
if refused then return refused end
if not m.incarnation then return {'GONE', m.status or 'missing'} end
if m.status == status then return {'OK', m.incarnation, m.expires or ''} end
if closed(m) then return {'STATUS', m.status} end
local stands
refused, stands = judge_fence(m, fence, KEYS[2], now)
if refused then
  if refused[1] == 'FENCED' then return {'FENCED', m.fence, 1, ''} end
  return refused
end
local open = redis.call('HKEYS', KEYS[4])
if #open > 0 then return {'UNRESOLVED', unpack(open, 1, math.min(#open, 100))} end

local unread = redis.call('XLEN', KEYS[5])
if ARGV[5] ~= '1' and unread > 0 then return {'UNREAD', unread} end

local expires = ttl_ms ~= '' and whole(math.floor(tonumber(now) / 1000) + tonumber(ttl_ms)) or ''
redis.call('HSET', KEYS[1], 'status', status, 'updated', now, 'fence', stands)
if expires ~= '' then
  redis.call('HSET', KEYS[1], 'expires', expires)
else
  redis.call('HDEL', KEYS[1], 'expires')
end
if fence == '' and m.holder then redis.call('HDEL', KEYS[1], 'holder') end
return {'OK', m.incarnation, expires}
