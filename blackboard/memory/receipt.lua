-- Appends a receipt to the chain of a path, and ends what it was for; nothing is written if another came in between.
-- KEYS: head, receipts, forgetting
-- ARGV: previous (digest of the receipt before, or empty), digest, receipt, ttl_ms or '', field (of forgetting)...
-- Returns: {"OK"} | {"MOVED", digest}
--
-- The receipts end with the newest of them, after ttl_ms; older ones go when it is written.
-- luacheck: read globals guard
local previous, digest, receipt, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local newest = redis.call('HGET', KEYS[1], 'receipt') or ''
local recent = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 100)
for _, row in ipairs(recent) do
  if row[2][2] == digest then return {'OK'} end
end
if newest ~= previous then return {'MOVED', newest} end
redis.call('HEXISTS', KEYS[3], '')

local now = math.floor(guard.now() / 1000)
redis.call('XADD', KEYS[2], '*', 'digest', digest, 'receipt', receipt)
if ttl ~= '' then
  redis.call('XTRIM', KEYS[2], 'MINID', guard.text(now - tonumber(ttl)) .. '-0')
  redis.call('PEXPIRE', KEYS[2], ttl)
else
  redis.call('PERSIST', KEYS[2])
end
redis.call('HSET', KEYS[1], 'receipt', digest)
for i = 5, #ARGV do redis.call('HDEL', KEYS[3], ARGV[i]) end
return {'OK'}
