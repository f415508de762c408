-- Prelude: the records without a subject that say the same, by the digest of it. One is named by a string, which ends with it;
-- of several there is a sorted set, by the seq of their first write, and `contents` tells a sweep in which one its row is.
-- luacheck: read globals path
local said = {} -- luacheck: ignore said

-- How many records are looked at without asking twice: those that expired or are superseded are passed over.
local LEAST = 8
local PAGE = 100

function said.of(digest, content, same, contents, order, expiring)
  return {digest = digest, content = content, same = same, contents = contents, order = order, expiring = expiring}
end

local function row(place, id)
  redis.call('ZADD', place.same, redis.call('ZSCORE', place.order, id) or '0', id)
  if redis.call('ZSCORE', place.expiring, id) then
    redis.call('HSET', place.contents, id, place.digest)
  else
    redis.call('HDEL', place.contents, id)
  end
end

-- Enters a record that has its rows in the order of the path and, if it expires, among those that do.
function said.enter(place, id)
  local holder = redis.call('GET', place.content)
  if holder and holder ~= id then
    redis.call('DEL', place.content)
    row(place, holder)
  end
  if holder and holder ~= id or redis.call('EXISTS', place.same) == 1 then return row(place, id) end
  redis.call('SET', place.content, id)
  local expires = redis.call('ZSCORE', place.expiring, id)
  if expires then redis.call('PEXPIREAT', place.content, expires) end
end

-- Takes a record, or what is left of one, out.
function said.leave(place, id)
  if redis.call('GET', place.content) == id then redis.call('DEL', place.content) end
  redis.call('ZREM', place.same, id)
  redis.call('HDEL', place.contents, id)
end

-- Finds the first of them that stands and is not superseded; near maps ids to declared keys. Ids that were not declared are
-- added to asked, and then the answer does not count.
function said.first(place, near, now, reach, asked)
  local holder, offered, from = redis.call('GET', place.content), 0, 0
  local ids = holder and {holder} or redis.call('ZRANGE', place.same, 0, PAGE - 1)
  while #ids > 0 do
    for _, id in ipairs(ids) do
      local record = near[id] and path.record(near[id], now)
      if offered == 0 and record and record.content == place.digest and record.superseded_by == '' then
        record.id = id
        return record
      elseif not near[id] then
        offered, asked[#asked + 1] = offered + 1, id
        if offered >= math.max(tonumber(reach), LEAST) then return end
      end
    end
    from = from + #ids
    ids = holder and {} or redis.call('ZRANGE', place.same, from, from + PAGE - 1)
  end
end
