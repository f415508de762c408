-- Makes a snapshot the newest one: its chunks stay, then the pointer names them, then the log before it and the chunks of
-- the one before go.
-- KEYS: head, index, log, chunks, chunk..., victim...
-- ARGV: fence, incarnation, scrubs, before (the pointer that was read; empty: none), pointer, trim (seq), count (of chunks), name (of chunk and victim)...
-- Returns: {"OK"} | {"SCRUBBED", scrubs} | {"MOVED"} | {"MISSING"} | {"LOST", holder, fence} | {"REGRESSED"}
-- luacheck: read globals guard
local fence, incarnation, scrubs, before, pointer, trim = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local first, last = 5, 4 + tonumber(ARGV[7])
local names = 8 - first
local head = redis.call('HMGET', KEYS[1], 'fence', 'incarnation', 'scrubs', 'trimmed')
local stands = redis.call('GET', KEYS[2]) or ''
local refusal = guard.fence(fence, head[1])

if stands == pointer then
  return {'OK'}
end
if refusal or head[2] ~= incarnation then
  return refusal or {'REGRESSED'}
end
if (head[3] or '0') ~= scrubs then
  return {'SCRUBBED', head[3] or '0'}
end
if stands ~= before or redis.call('SCARD', KEYS[4]) ~= #KEYS - 4 then
  return {'MOVED'}
end
for i = first, last do
  if redis.call('EXISTS', KEYS[i]) == 0 then
    return {'MISSING'}
  end
end

for i = first, last do
  redis.call('PERSIST', KEYS[i])
end
redis.call('SET', KEYS[2], pointer)
if tonumber(trim) > tonumber(head[4] or '0') then
  redis.call('HSET', KEYS[1], 'trimmed', trim)
  redis.call('XTRIM', KEYS[3], 'MINID', guard.text(tonumber(trim) + 1) .. '-0')
end
for i = last + 1, #KEYS do
  redis.call('UNLINK', KEYS[i])
  redis.call('SREM', KEYS[4], ARGV[i + names])
end
return {'OK'}
