-- Store one record: everything is checked, then the record, then what finds it, then the head.
-- KEYS: head, log, order, expiring, subjects, pending, ops, record, content, same, old_content, old_same, subject, old_subject, vectors, sources, contents, near...
-- ARGV: op, keep_ms, incarnation, seq, id, expected, old_content, old_subject, unique, reach, record..., near...
-- Returns: {"OK", answer} | {"DUP", incarnation, id, fields, space} | {"MOVED", content, subject, ids} | {"SPACE", space} | {"CONFLICT", version}
--   | {"ABSENT"} | {"TOOLATE"} | {"REGRESSED", what}
-- luacheck: read globals guard path chain said sets sources
--
-- expected is the version that is replaced, '0' if none may stand, '' for whatever does.
-- record... is content, subject, valid_from, created, ttl_ms, text, value, metadata, importance, pinned, space, vector, without,
-- indexed ('1': a vector set is wanted).
-- old_content and old_subject are what the caller knows of the record that stands, or of what is left of one whose time is over;
-- near are the ids whose records are the last keys: MOVED says what they should be. without says what no vector means: 'keep' the
-- one that stands, 'pend' for one that is still to be made, 'none' for none. answer is, separated by spaces, '-' for what is not:
-- incarnation, seq, version, vid, now, created, valid_from, expires, valid_until, and superseded_by, which is the rest.

local head_k, log_k, order_k, expiring_k, subjects_k, pending_k, ops_k, record_k = unpack(KEYS, 1, 8)
local content_k, same_k, old_content_k, old_same_k = unpack(KEYS, 9, 12)
local subject_k, old_subject_k, vectors_k, sources_k, contents_k = unpack(KEYS, 13, 17)
local op, keep_ms, incarnation, seen, id, expected = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local old_content, old_subject, unique, reach, content, subject = ARGV[7], ARGV[8], ARGV[9] == '1', ARGV[10], ARGV[11], ARGV[12]
local valid_from, created, ttl_ms, space, vector, without = ARGV[13], ARGV[14], ARGV[15], ARGV[21], ARGV[22], ARGV[23]
local near = {}
for i = 25, #ARGV do near[ARGV[i]] = KEYS[i - 7] end

local repeated = path.answered(ops_k, op)
if repeated then return {'OK', repeated} end
local now = guard.now()
local head, refused = path.head(head_k, order_k, now, incarnation, seen)
if refused then return refused end
if path.overdue(op, now, keep_ms) then return {'TOOLATE'} end
local old = path.record(record_k, now)
if expected ~= '' then
  if not old and expected ~= '0' then return {'ABSENT'} end
  if old and old.version ~= expected then return {'CONFLICT', old.version} end
end
-- Of an id that is new nothing can be left that would have to be taken away.
local row = redis.call('ZSCORE', order_k, id)
local fresh = not old and not row
local was = old and old.subject or row and redis.call('HGET', subjects_k, id) or ''
local spoke = old and old.content or row and redis.call('HGET', contents_k, id) or ''
if spoke ~= '' and spoke ~= old_content or not fresh and was ~= old_subject then return {'MOVED', spoke, was, {}} end

-- Who says the same already: about a subject it can be the last one alone.
local asked, line, twin = {}, nil, nil
local same = said.of(content, content_k, same_k, contents_k, order_k, expiring_k)
if subject ~= '' then line = chain.of(subject, subject_k, order_k, near, reach, now) end
if unique and line then
  twin = chain.last(line)
elseif unique then
  twin = said.first(same, near, now, reach, asked)
end
if twin and twin.content == content and twin.superseded_by == '' then
  return {'DUP', head.incarnation, twin.id, redis.call('HGETALL', twin.key), head.space or ''}
end
if space ~= '' and head.space and head.space ~= space then return {'SPACE', head.space} end

-- Where it stands among the records about its subject, and what stands there without it.
if valid_from == '' then valid_from = guard.text(now) end
local place = old and row and tonumber(row) or head.seq + 1
local stays = old and old.subject == subject and old.valid_from == valid_from
local before, after, from, left
if was ~= '' then from = chain.of(was, old_subject_k, order_k, near, reach, now) end
if line and not stays then
  before = chain.neighbour(line, id, valid_from, place, -1)
  after = chain.neighbour(line, id, valid_from, place, 1)
  for _, peer in ipairs(line.asked) do asked[#asked + 1] = peer end
end
if old and from and not stays then
  left = chain.neighbour(from, id, old.valid_from, place, -1)
  if old.subject ~= subject then chain.neighbour(from, id, old.valid_from, place, 1) end
  for _, peer in ipairs(from.asked) do asked[#asked + 1] = peer end
end
-- What is left of a merged record ends here.
local merged = row and not old and sources.of(sources_k, row, id, near, now, asked)
if #asked > 0 then return {'MOVED', spoke, was, asked} end
if line and stays then redis.call('ZCARD', subject_k) end
if from and not old then redis.call('ZCARD', old_subject_k) end
if not fresh or ttl_ms ~= '' then
  redis.call('ZCARD', expiring_k)
  redis.call('HLEN', subjects_k)
end
if not fresh then
  redis.call('ZCARD', sources_k)
  redis.call('HLEN', contents_k)
end
if not fresh or without == 'pend' then redis.call('SCARD', pending_k) end
redis.call('XLEN', log_k)
local keeps = old and vector == '' and without == 'keep'
if vector ~= '' then
  sets.add(head, vectors_k, space, id, vector, ARGV[24])
elseif not keeps and not fresh then
  sets.remove(head, vectors_k, id)
end

-- The record.
local version = old and (old.op == op and old.version or guard.text(tonumber(old.version) + 1)) or '1'
local seq = path.log(head, log_k, 'put', id, version)
local expires = ttl_ms ~= '' and guard.text(math.floor(now / 1000) + tonumber(ttl_ms)) or ''
local valid_until, superseded_by = '', ''
if stays then
  valid_until, superseded_by = old.valid_until, old.superseded_by
elseif after then
  valid_until, superseded_by = after.valid_from, after.id
end
if old then created = old.created elseif created == '' then created = guard.text(now) end
local tag = vector ~= '' and path.tag(space) or ''
local vid = keeps and path.vid(head, old) or vector ~= '' and seq or ''
-- A vector of another space stays beside the new one as long as the text is the one that both were made of.
local outdated = old and old.next_of ~= '' and not keeps
  and (old.next_of == tag or tag == '' or redis.call('HGET', record_k, 'text') ~= ARGV[16])
if row and not old then redis.call('DEL', record_k) end
local fields, absent = {}, {}
local function set(name, value)
  if value == '' then
    absent[#absent + 1] = name
  else
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
end
for i, name in ipairs({'text', 'value', 'metadata', 'importance', 'pinned'}) do set(name, ARGV[15 + i]) end
set('content', content)
set('subject', subject)
set('ttl', ttl_ms)
set('version', version)
set('seq', seq)
set('op', op)
set('created', created)
set('updated', guard.text(now))
set('valid_from', valid_from)
set('valid_until', valid_until)
set('superseded_by', superseded_by)
set('expires', expires)
if not keeps then
  set('vid', vid)
  set('of', tag)
  set('vector', vector)
end
redis.call('HSET', record_k, unpack(fields))
if old and #absent > 0 then redis.call('HDEL', record_k, unpack(absent)) end
if outdated then redis.call('HDEL', record_k, 'next', 'next_of', 'next_vid') end

-- What finds it.
if not old then redis.call('ZADD', order_k, seq, id) end
if not row then head.count = head.count + 1 end
if expires == '' and not fresh then
  redis.call('PERSIST', record_k)
  redis.call('ZREM', expiring_k, id)
elseif expires ~= '' then
  redis.call('PEXPIREAT', record_k, expires)
  redis.call('ZADD', expiring_k, expires, id)
end
if spoke ~= '' and spoke ~= content then said.leave(said.of(spoke, old_content_k, old_same_k, contents_k), id) end
if subject == '' then said.enter(same, id) end
if expires ~= '' and subject ~= '' then
  redis.call('HSET', subjects_k, id, subject)
elseif not fresh then
  redis.call('HDEL', subjects_k, id)
end
if vid == '' and without == 'pend' then
  redis.call('SADD', pending_k, id)
elseif not fresh and (vid ~= '' or without == 'none') then
  redis.call('SREM', pending_k, id)
end
if from and was ~= subject then chain.clear(from, id) end
if line then chain.enter(line, id, valid_from, expiring_k, subjects_k) end
if left then chain.resume(left, id, old.valid_until, old.superseded_by) end
if before and left and before.id == left.id then before = left end
if before then chain.stop(before, valid_from, id) end
chain.store(head, log_k, left)
chain.store(head, log_k, before)
if merged then sources.free(head, log_k, sources_k, order_k, row, merged, '', '') end
if not fresh and not stays then redis.call('ZREM', sources_k, id) end
if space ~= '' and not head.space then
  path.log(head, log_k, 'space', '', '0')
  redis.call('HSET', head_k, 'space', space)
end
local function shown(value) return value == '' and '-' or value end
local answer = table.concat({head.incarnation or guard.text(now), seq, version, shown(vid), guard.text(now), created, valid_from,
  shown(expires), shown(valid_until), superseded_by}, ' ')
path.close(head, ops_k, op, keep_ms, answer)
return {'OK', answer}
