-- Remove one record and all that finds it; what it had superseded is valid again, and so is what it was merged of.
-- KEYS: head, log, order, expiring, subjects, pending, ops, record, content, same, subject, vectors, sources, contents, near...
-- ARGV: op, keep_ms, incarnation, seq, id, only, content, subject, reach, near...
-- Returns: {"OK", answer} | {"MOVED", content, subject, ids} | {"NONE"} | {"TOOLATE"} | {"REGRESSED", what}
-- luacheck: read globals guard path chain said sets sources
--
-- only is '' for whatever stands, a version for that one, 'expired' for what is left of a record whose time is over.
-- answer is "<seq> <version> <content>"; version 0 and no content of an expired one.

local head_k, log_k, order_k, expiring_k, subjects_k, pending_k = unpack(KEYS, 1, 6)
local ops_k, record_k, content_k, same_k, subject_k, vectors_k, sources_k, contents_k = unpack(KEYS, 7, 14)
local op, keep_ms, incarnation, seen, id, only = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local content, subject = ARGV[7], ARGV[8]
local near = {}
for i = 10, #ARGV do near[ARGV[i]] = KEYS[i + 5] end

local repeated = path.answered(ops_k, op)
if repeated then return {'OK', repeated} end
local now = guard.now()
local head, refused = path.head(head_k, order_k, now, incarnation, seen)
if refused then return refused end
if path.overdue(op, now, keep_ms) then return {'TOOLATE'} end
local row = redis.call('ZSCORE', order_k, id)
local old = path.record(record_k, now)
if not row or (old == nil) ~= (only == 'expired') or old and only ~= '' and only ~= old.version then return {'NONE'} end
local was = old and old.subject or redis.call('HGET', subjects_k, id) or ''
local spoke = old and old.content or redis.call('HGET', contents_k, id) or ''
if spoke ~= content or was ~= subject then return {'MOVED', spoke, was, {}} end
local line, left
local asked = {}
local merged = sources.of(sources_k, row, id, near, now, asked)
if subject ~= '' then line = chain.of(subject, subject_k, order_k, near, ARGV[9], now) end
if old and line then
  left = chain.neighbour(line, id, old.valid_from, tonumber(row), -1)
  chain.neighbour(line, id, old.valid_from, tonumber(row), 1)
  for _, peer in ipairs(line.asked) do asked[#asked + 1] = peer end
end
if #asked > 0 then return {'MOVED', content, subject, asked} end
if line and not old then redis.call('ZCARD', subject_k) end
redis.call('ZCARD', expiring_k)
redis.call('SCARD', pending_k)
redis.call('XLEN', log_k)

redis.call('DEL', record_k)
local same = said.of(content, content_k, same_k, contents_k, order_k, expiring_k)
if content ~= '' then said.leave(same, id) end
if line then chain.clear(line, id) end
redis.call('ZREM', order_k, id)
redis.call('ZREM', expiring_k, id)
redis.call('HDEL', subjects_k, id)
redis.call('SREM', pending_k, id)
redis.call('ZREM', sources_k, id)
sets.remove(head, vectors_k, id)
local version = old and old.version or '0'
local seq = path.log(head, log_k, 'forget', id, version)
if left then chain.resume(left, id, old.valid_until, old.superseded_by) end
chain.store(head, log_k, left)
local handed = old and subject == '' and old.superseded_by or ''
for _, source in ipairs(merged) do
  if source.content == content then said.enter(same, source.id) end
end
sources.free(head, log_k, sources_k, order_k, row, merged, old and old.valid_until or '', handed)
head.count = head.count - 1
local answer = seq .. ' ' .. version .. ' ' .. (old and content or '')
path.close(head, ops_k, op, keep_ms, answer)
return {'OK', answer}
