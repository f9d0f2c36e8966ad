-- Returns the index of a record, which the end of its nonce names; nil if it is in none, or if there is no index.
local function record_index(nonce, held, queued)
  local which = nonce and string.match(nonce, '%.(%l+)$')
  return which == 'held' and held or which == 'queued' and queued or nil
end
