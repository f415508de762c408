-- Prelude: what merged records stand for, each by the seq of the first write of the one by which it is superseded. It stays
-- so as long as anything is left under that one's id, and takes its row along when it goes itself.
-- luacheck: read globals path chain
local sources = {} -- luacheck: ignore sources

-- Most sources whose keys are asked for at once.
local MOST = 1000

-- Reads those that a record, or what is left of one, still supersedes; near maps ids to declared keys.
-- Ids that were not declared are added to asked, and then the answer does not count.
function sources.of(key, score, id, near, now, asked)
  local found, missing = {}, 0
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', key, score, score)) do
    local source = near[name] and path.record(near[name], now)
    if source and source.superseded_by == id then
      source.id = name
      found[#found + 1] = source
    elseif not near[name] and missing < MOST then
      missing = missing + 1
      asked[#asked + 1] = name
    end
  end
  return found
end

-- Enters a record as one that another supersedes, whatever it was entered as before.
function sources.enter(key, order, id, superseded_by)
  local score = superseded_by ~= '' and redis.call('ZSCORE', order, superseded_by)
  if score then
    redis.call('ZADD', key, score, id)
  else
    redis.call('ZREM', key, id)
  end
  return score
end

-- Makes them current; or what superseded the record that goes supersedes them, if that is there.
function sources.free(head, log, key, order, score, found, valid_until, superseded_by)
  redis.call('ZREMRANGEBYSCORE', key, score, score)
  for _, source in ipairs(found) do
    local handed = sources.enter(key, order, source.id, superseded_by)
    source.valid_until, source.superseded_by, source.moved = handed and valid_until or '', handed and superseded_by or '', true
    chain.store(head, log, source)
  end
end
