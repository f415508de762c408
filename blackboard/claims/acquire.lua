-- Grants the lease of a thread, or extends it for the owner who has it.
-- KEYS: meta, lock, ops, latest
-- ARGV: owner, ttl_ms, stored
-- Returns: {"OK", fence, incarnation, status, takeover, now_us} | {"HELD", owner, remaining_ms} | {"DEAD"} | {"REGRESSED"} | {"REMOVING", incarnation} | {"GONE"}
--
-- With stored "1" only a thread that has a checkpoint is granted: an id that has none answers GONE and is not reserved.
-- luacheck: read globals guard
local owner, ttl, stored_only = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1'
local now = guard.now()
local meta = redis.call('HMGET', KEYS[1], 'status', 'fence', 'holder', 'incarnation', 'expires', 'removing', 'taken', 'copying')
local status, stored, holder, incarnation = meta[1], meta[2], meta[3], meta[4] or ''
local locked, driver = guard.split(redis.call('GET', KEYS[2]))

if redis.call('ZSCORE', KEYS[3], 'dead:' .. owner) then
  return {'DEAD'}
end
if not status and redis.call('EXISTS', KEYS[4]) == 1 then
  return {'REGRESSED'}
end
if locked and tonumber(locked) > tonumber(stored or '0') then
  return {'REGRESSED'}
end
if meta[6] or (meta[4] and guard.expired(meta[5], now)) then
  return stored_only and {'GONE'} or {'REMOVING', meta[6] or incarnation}
end
if meta[8] then
  -- Whoever copies to this id opens it; how long that takes is not known, so the time left is one to ask again after.
  return {'HELD', 'copy ' .. meta[8], 1000}
end
-- A lock below the stored fence is debris of a grant that was broken.
if locked and locked == stored then
  if driver ~= owner then
    return {'HELD', driver, redis.call('PTTL', KEYS[2])}
  end
  redis.call('PEXPIRE', KEYS[2], ttl)
  return {'OK', stored, incarnation, status, meta[7] == stored and 1 or 0, guard.text(now)}
end

if stored_only and incarnation == '' then
  return {'GONE'}
end
local fence = guard.text(math.max(tonumber(stored or '0') + 1, now))
redis.call('HSET', KEYS[1], 'status', status or 'new', 'fence', fence, 'holder', owner)
if holder then
  redis.call('HINCRBY', KEYS[1], 'takeovers', 1)
  redis.call('HSET', KEYS[1], 'taken', fence)
end
if not status or status == 'new' or status == 'deleted' then
  redis.call('HSETNX', KEYS[1], 'created', guard.text(now))
  if redis.call('PTTL', KEYS[1]) < guard.reserved_ms + ttl then
    redis.call('PEXPIRE', KEYS[1], guard.reserved_ms + ttl)
  end
end
redis.call('SET', KEYS[2], fence .. ':' .. owner, 'PX', ttl)
return {'OK', fence, incarnation, status or 'new', holder and 1 or 0, guard.text(now)}
