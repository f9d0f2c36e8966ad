-- Returns the index that lists a record, which the end of its nonce names; nil if no index lists it.
local function record_index(nonce, held, queued)
  local which = nonce and string.match(nonce, '%.(%l+)$')
  return which == 'held' and held or which == 'queued' and queued or nil
end
