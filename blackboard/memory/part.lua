-- Makes current again what a merged record had superseded, and supersedes that by the first of them.
-- KEYS: head, log, order, expiring, ops, record, content, same, contents, sources, source...
-- ARGV: op, keep_ms, incarnation, seq, fence, id, content, (id of source)...
-- Returns: {"OK", answer} | {"MORE", ids} | {"CHANGED", id} | {"LOST", holder, fence} | {"TOOLATE"} | {"REGRESSED", what}
-- luacheck: read globals guard path chain said sources
--
-- answer is "<incarnation> <seq> <how many are current again>". A source that was changed or forgotten since is left as it is.
-- MORE names sources that the caller did not.
-- content is the digest of what the merged record says; a source that says the same is found by it again.
local head_k, log_k, order_k, expiring_k, ops_k = unpack(KEYS, 1, 5)
local record_k, content_k, same_k, contents_k, sources_k = unpack(KEYS, 6, 10)
local op, keep_ms, incarnation, seen, fence, id = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local repeated = path.answered(ops_k, op)
if repeated then return {'OK', repeated} end
local now = guard.now()
local head, refused = path.head(head_k, order_k, now, incarnation, seen)
if refused then return refused end
if path.overdue(op, now, keep_ms) then return {'TOOLATE'} end
local stale = guard.fence(fence, redis.call('HGET', head_k, 'fence'))
if stale then return stale end
local merged = path.record(record_k, now)
if not merged or merged.superseded_by ~= '' or merged.content ~= ARGV[7] then return {'CHANGED', id} end
redis.call('XLEN', log_k)
local near, asked = {}, {}
for i = 8, #ARGV do near[ARGV[i]] = KEYS[i + 3] end
local row = redis.call('ZSCORE', order_k, id)
if row then sources.of(sources_k, row, id, near, now, asked) end
if #asked > 0 then return {'MORE', asked} end

local same = said.of(merged.content, content_k, same_k, contents_k, order_k, expiring_k)
local first, restored = nil, 0
for i = 11, #KEYS do
  local source, name = path.record(KEYS[i], now), ARGV[i - 3]
  if source and source.superseded_by == id then
    first, restored = first or name, restored + 1
    local version = guard.text(tonumber(source.version) + 1)
    redis.call('HDEL', KEYS[i], 'superseded_by', 'valid_until')
    redis.call('HSET', KEYS[i], 'version', version, 'seq', path.log(head, log_k, 'put', name, version), 'op', op)
    if source.content == merged.content then said.enter(same, name) end
  end
end
if first then
  local version = guard.text(tonumber(merged.version) + 1)
  redis.call('HSET', record_k, 'version', version, 'seq', path.log(head, log_k, 'put', id, version),
    'superseded_by', first, 'valid_until', guard.text(now), 'op', op)
  if row then redis.call('ZREMRANGEBYSCORE', sources_k, row, row) end
  sources.enter(sources_k, order_k, id, first)
end
local answer = head.incarnation .. ' ' .. guard.text(head.seq) .. ' ' .. guard.text(restored)
path.close(head, ops_k, op, keep_ms, answer)
return {'OK', answer}
