-- Read what one manifest refers to, where scripts may touch declared keys only; the reader found the manifest before.
-- KEYS: meta, latest, history, values, effects_open, checkpoint, writes, segment...
-- ARGV: newest, id, incarnation, manifest, number of digests, digest..., count...
-- Returns: {"OK", now, meta, id, manifest, values, segments, writes, open} | {"MOVED"}
--
-- newest is 1 if the id has to be the newest one still.

local now = now_us()
local m = read_meta(KEYS[1], now)
if m.incarnation ~= ARGV[3] or m.expired then return {'MOVED'} end
if ARGV[1] == '1' and redis.call('GET', KEYS[2]) ~= ARGV[2] then return {'MOVED'} end
if (redis.call('GET', KEYS[6]) or '') ~= ARGV[4] then return {'MOVED'} end

local values, segments, digests = {}, {}, tonumber(ARGV[5])
for i = 6, 5 + digests, 1000 do
  local found = redis.call('HMGET', KEYS[4], unpack(ARGV, i, math.min(i + 999, 5 + digests)))
  for j = 1, #found do values[i + j - 6] = found[j] end
end
for i = 8, #KEYS do
  local count = tonumber(ARGV[i + digests - 2])
  segments[i - 7] = count > 0 and redis.call('LRANGE', KEYS[i], 0, count - 1) or {}
end
local meta, writes, open = redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[7]), redis.call('HGETALL', KEYS[5])
return {'OK', now, meta, ARGV[2], ARGV[4], values, segments, writes, open}
