/**
 * Defects that once passed all tests, each with the test that finds it now; each test is short enough to run often. A
 * mutant names a text that occurs once in the sources, in any file, so that it survives a move of the file.
 */
export interface Mutant {
  readonly find: string;
  readonly replace: string;
  /** The test that must fail, relative to `test/`. */
  readonly test: string;
}

/** The mutants by the behaviour that they break. */
export const mutants: Readonly<Record<string, Mutant>> = {
  'a flush is committed wherever the position stands': {
    find: 'state.txns.get(epoch.appId) !== epoch.position',
    replace: 'false',
    test: 'unit/compact/commit-fence.test.ts',
  },
  'the claim on the stream never expires': {
    find: 'if (isStale && assertStreamOwner !== undefined)',
    replace: 'if (false)',
    test: 'unit/compact/commit-fence.test.ts',
  },
  'a flush is committed into any epoch': {
    find: 'lake.epoch?.appId !== epoch.appId ||',
    replace: '',
    test: 'unit/compact/commit-fence.test.ts',
  },
  'available times are committed in any order': {
    find: 'if (lake.availableAtMs !== before) throw',
    replace: 'if (false) throw',
    test: 'unit/compact/commit-fence.test.ts',
  },
  'a recreated stream has no lag until it is as long as the previous one': {
    find: 'epoch?.streamId === state.id ? epoch.position : 0',
    replace: 'epoch?.position ?? 0',
    test: 'unit/compact/compact-metrics.test.ts',
  },
  'a gauge keeps its value after the broker has disconnected': {
    find: 'if (value === undefined) gauge.remove();',
    replace: 'if (value === undefined) continue;',
    test: 'unit/compact/compact-metrics.test.ts',
  },
  'the metrics of a process that has ended are shown on': {
    find: 'processes.get(name)?.current() === undefined ? [] : [metrics]',
    replace: '[metrics]',
    test: 'unit/service/process-metrics.test.ts',
  },
  'a file that is removed, or replaced, counts indefinitely': {
    find: 'if (replaced !== undefined) addToSize(state.size, replaced, -1);',
    replace: '',
    test: 'unit/lake/snapshot-view.test.ts',
  },
  'the watermark moves on although the stream does': {
    find: '|| lastSequence !== epoch.position) return;',
    replace: ') return;',
    test: 'unit/compact/idle-watermark.test.ts',
  },
  'the watermark moves on by a stream that was not still while it was looked at': {
    find: 'if (idleStream.isIdle(known)) await watermark.take',
    replace: 'await watermark.take',
    test: 'integration/compact/watermark.test.ts',
  },
  'the stream is not looked at again before a flush': {
    find: 'if (!(await isBatchStillValid(reader, epoch, fault, batch))) return false;',
    replace: '',
    test: 'unit/compact/commit-fence.test.ts',
  },
  'what was pulled ahead counts in another life of the stream': {
    find: ' && ahead.after.appId === after.appId',
    replace: '',
    test: 'integration/compact/prefetch.test.ts',
  },
  'a connection for pulls that has gone silent is kept': {
    find: 'if (!clean && pulls?.isSilent() === true) pulls.close();',
    replace: '',
    test: 'integration/stream/pull-connection.test.ts',
  },
  'a batch goes straight to the file regardless of its keys': {
    find: "...(repeats === undefined ? [isKeyedSql('r.event_id')] : []),",
    replace: '',
    test: 'unit/lake/direct-writer.test.ts',
  },
  'a batch goes straight to the file regardless of repeated keys': {
    find: 'if (failedLines.length > 0 || rows === 0) return undefined;',
    replace: '',
    test: 'unit/lake/direct-writer.test.ts',
  },
  'repeats go straight to the file again': {
    find: "(repeats ?? 0) > 0 ? `WHERE ${isKeptSql}` : ''",
    replace: "''",
    test: 'unit/lake/direct-writer.test.ts',
  },
  'a batch is classified while the keys of the day are loaded': {
    find: 'oneAtATime.run(() => classify(batch, lookUpAll, loadMore))',
    replace: 'classify(batch, lookUpAll, loadMore)',
    test: 'unit/compact/idempotency-keys.test.ts',
  },
  'a value in a column that no batch had before is left out': {
    find: '...unused.map(({ name }) => `r.${name} IS NOT NULL`),',
    replace: '',
    test: 'unit/lake/direct-writer.test.ts',
  },
  'a batch goes straight to the file with fewer rows than events': {
    find: 'written === undefined || written.numRecords === events - repeats',
    replace: 'true',
    test: 'unit/lake/direct-writer.test.ts',
  },
  'a compactor that has lost the lake seals on': {
    find: 'assertOwner(primaryTable.lake(), writer);\n    return await task();',
    replace: 'return await task();',
    test: 'unit/compact/commit-fence.test.ts',
  },
  'the rows that a seal wrote are not counted': {
    find: 'if (countRows(outputs) !== rowsIn)\n    throw',
    replace: 'if (false)\n    throw',
    test: 'unit/compact/seal-fence.test.ts',
  },
  'a rewrite is committed although its files are no longer in the table': {
    find: "if (replacedFile !== undefined)\n            throw new AppError('commit_conflict'",
    replace: "if (false)\n            throw new AppError('commit_conflict'",
    test: 'unit/compact/seal-fence.test.ts',
  },
  'a merge is committed although rows are missing': {
    find: 'if (rows === read && (rows === known || Number.isNaN(known))) return;',
    replace: 'if (rows <= read) return;',
    test: 'unit/compact/merge-fence.test.ts',
  },
  'the files that readers of folders need are removed before a merge is shown': {
    find: 'if (publishedPath !== undefined && (await isPending(path.posix.dirname(publishedPath)))) continue;',
    replace: '',
    test: 'unit/compact/merge-fence.test.ts',
  },
  'a request is found from another account': {
    find: 'job.idAccount !== user.idAccount ||',
    replace: '',
    test: 'unit/export/api/exports.test.ts',
  },
  'a list has requests of another account': {
    find: 'job.idUser === idUser && job.idAccount === idAccount && !isExpired(job, clock.nowMs())',
    replace: 'job.idUser === idUser && !isExpired(job, clock.nowMs())',
    test: 'unit/export/api/exports.test.ts',
  },
  'another account uses up the memory of this one': {
    find: 'inProgress.filter((job) => job.idAccount === idAccount)',
    replace: 'inProgress',
    test: 'unit/export/api/exports.test.ts',
  },
  'a publish group grows without a bound': {
    find: '(bytes += lines.length) <= maxMessageBytes',
    replace: '(bytes += lines.length) <= Infinity',
    test: 'unit/ingest/group-commit.test.ts',
  },
  'the queue has no limit': {
    find: 'room.bytes() + lines.length > options.maxWaitingBytes',
    replace: 'false',
    test: 'unit/ingest/group-commit.test.ts',
  },
  // Pure code: an event's id and line, a pipeline file, pruning, links, ranges, numbers.
  'a key stands for any method': {
    find: "sha256([method, ...eventTexts].join('\\n'))",
    replace: "sha256(eventTexts.join('\\n'))",
    test: 'unit/datasets/event-id.test.ts',
  },
  'SQL reads another part of an id as its fingerprint': {
    find: '${keyEnd + 1}, ${fingerprintEnd - keyEnd}',
    replace: '${keyEnd}, ${fingerprintEnd - keyEnd}',
    test: 'unit/datasets/event-id.test.ts',
  },
  'an integer that lost digits is stored': {
    find: 'Number.isSafeInteger(member)',
    replace: 'Number.isInteger(member)',
    test: 'unit/datasets/event-line.test.ts',
  },
  'an empty user id is stored': {
    find: "value === undefined || (value === '' && field.isUserId)",
    replace: 'value === undefined',
    test: 'unit/datasets/event-line.test.ts',
  },
  'parameters in another order are another request': {
    find: 'Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1))',
    replace: 'Object.entries(value)',
    test: 'unit/datasets/event-line.test.ts',
  },
  'a file is folded away by a column that may be empty': {
    find: 'misplaced !== undefined',
    replace: 'false',
    test: 'unit/datasets/pipeline-file.test.ts',
  },
  'a value of a partition ends its literal': {
    find: "${sqlText(partition[name] ?? '')}::",
    replace: "'${partition[name] ?? ''}'::",
    test: 'unit/datasets/pipeline-file.test.ts',
  },
  "a file is left out for its maximum's last millisecond": {
    find: 'parseTime(file.maxValues[column]) + 1 <',
    replace: 'parseTime(file.maxValues[column]) <',
    test: 'unit/lake/prune.test.ts',
  },
  'no app at all is every app': {
    find: "mayHoldOneOf(file, 'id_app', filter.idApps) &&",
    replace: "(filter.idApps?.length === 0 || mayHoldOneOf(file, 'id_app', filter.idApps)) &&",
    test: 'unit/lake/prune.test.ts',
  },
  'the end of a range exceeds the end of its file': {
    find: "to === '' ? size - 1 : Math.min(Number(to), size - 1)",
    replace: "to === '' ? size - 1 : Number(to)",
    test: 'unit/reports/byte-range.test.ts',
  },
  'a weak tag satisfies If-Match': {
    find: 'parseTags(list)?.includes(etag) === true',
    replace: "parseTags(list)?.some((tag) => tag.replace(/^W\\//, '') === etag) === true",
    test: 'unit/reports/preconditions.test.ts',
  },
  'an integer loses its trailing zeros': {
    find: "`${parts['sign']}${significant}${'0'.repeat(-scale)}`",
    replace: "`${parts['sign']}${significant}`",
    test: 'unit/datasets/schema-registry.test.ts',
  },
  'an export whose filter is unknown selects more': {
    find: 'return isExportSpec(renamed) && Object.keys(renamed).every((name) => Object.hasOwn(members, name))',
    replace: 'return isExportSpec(renamed)',
    test: 'unit/export/jobs/export-spec.test.ts',
  },
  'an import sends again what the service may have forgotten, without asking': {
    find: 'Math.abs(nowMs() - sinceMs) > keySafeMs',
    replace: 'false',
    test: 'unit/client/import-model.test.ts',
  },
  'an import continues without recording the rejected events of a batch': {
    find: 'if (split.others.length + split.alone.length > 0) await persistRejectedLines',
    replace: 'if (false) await persistRejectedLines',
    test: 'unit/client/import-model.test.ts',
  },
  'a copy of an import continues without checking what the other one has sent': {
    find: '(sendLimit > 0 && Math.abs(nowMs - sinceMs) > resumedSoonMs)',
    replace: 'false',
    test: 'unit/client/import-file.test.ts',
  },
  'an import believes a clock that was set': {
    find: '> clockSlackMs',
    replace: '> Number.POSITIVE_INFINITY',
    test: 'unit/client/import-file.test.ts',
  },
  'a page of a proxy is an answer of the import': {
    find: "if (typeof fields[member] === 'string') return fields;",
    replace: 'if (member !== undefined) return fields;',
    test: 'unit/client/foreign-answers.test.ts',
  },
  'what an import has not come to again is in doubt since now': {
    find: 'if (takenBatches < initial.sendLimit) times.push(initial.sinceMs);',
    replace: '',
    test: 'unit/client/import-model.test.ts',
  },
  'a file that was stored in part is imported again': {
    find: 'finishedAt !== undefined && acknowledgedThrough.stored === 0 &&',
    replace: 'finishedAt !== undefined &&',
    test: 'unit/client/import-anew.test.ts',
  },
  'a file is imported again if only its repeated import stored nothing': {
    find: "&& salt === '' && unconfirmedSinceMs === undefined",
    replace: '',
    test: 'unit/client/import-anew.test.ts',
  },
  'an invalid header leaves the state of an import': {
    find: 'if (!(await checkStart(',
    replace: 'if (false && !(await checkStart(',
    test: 'unit/client/import-anew.test.ts',
  },
  'every user is an operator': {
    find: 'if (!isOperator) return operatorsOnly;',
    replace: '',
    test: 'integration/export/admin-api.test.ts',
  },
  'the events of every account are counted': {
    find: 'FROM ${filesSql} WHERE id_app IN (SELECT id_app FROM apps) AND date BETWEEN',
    replace: 'FROM ${filesSql} WHERE date BETWEEN',
    test: 'integration/export/data.test.ts',
  },
  'the log counts files of another app': {
    find: 'apps.has(idApp) &&',
    replace: '',
    test: 'unit/export/worker/data/count-days.test.ts',
  },
  'the fields of every account are looked at': {
    find: "FROM ${filesSql} AS events WHERE id_app IN (SELECT id_app FROM apps)${isEvent ? ' AND kind = $kind' : ''}",
    replace: "FROM ${filesSql} AS events WHERE true${isEvent ? ' AND kind = $kind' : ''}",
    test: 'integration/export/data.test.ts',
  },
  'an operator without an account is any user': {
    find: '(value.idAccount !== noAccount || value.operator !== undefined)',
    replace: 'value.idAccount >= noAccount',
    test: 'unit/access/access.test.ts',
  },
  'the cookie of a session is enough': {
    find: 'session !== undefined && timingSafeEqualText(session.csrfToken, shown)',
    replace: 'session !== undefined',
    test: 'unit/console/sessions.test.ts',
  },
  'a page of another site calls with a session': {
    find: "if (typeof shown !== 'string' || isOfOtherSite(headers)) return undefined;",
    replace: "if (typeof shown !== 'string') return undefined;",
    test: 'unit/console/sessions.test.ts',
  },
  'a session outlives the secret of its user': {
    find: 'update(`sessions of ${idUser}\\n${secret}${password}`)',
    replace: 'update(`sessions of ${idUser}\\n${secret.length}${password}`)',
    test: 'unit/console/sessions.test.ts',
  },
  'a right secret need not wait': {
    find: 'if (waitSeconds > 0) {',
    replace: 'if (false) {',
    test: 'unit/console/lock-out.test.ts',
  },
  'wrong secrets given elsewhere make a known browser wait': {
    find: 'return of === idUser && timingSafeEqualText(sign(idUser, nonce), signature) ? nonce : undefined;',
    replace: 'return undefined;',
    test: 'unit/console/lock-out.test.ts',
  },
  'a browser that one user knows is known of all': {
    find: 'return of === idUser && timingSafeEqualText(sign(idUser, nonce), signature)',
    replace: "return timingSafeEqualText(sign(of ?? '', nonce), signature)",
    test: 'unit/console/lock-out.test.ts',
  },
  // The newest folders: event lookup, change feed, watermark, slots, derived events, loads, catalogue, receipts,
  // sessions, webhooks, segments, changes of the lake, records, the flush loop.
  'another app is shown a row of the lake': {
    find: "target.idApp === undefined ? '' : 'AND id_app = $3'",
    replace: "target.idApp === undefined ? '' : 'AND $3 > 0'",
    test: 'unit/lake/find-rows.test.ts',
  },
  'another app is shown an event that waits in the stream': {
    find: 'if (lookupTarget.idApp !== undefined && event.idApp !== lookupTarget.idApp) continue;',
    replace: '',
    test: 'unit/event-lookup/find-event.test.ts',
  },
  'another app is shown a failed event': {
    find: 'lookupTarget.idApp === undefined || event?.idApp === lookupTarget.idApp;',
    replace: 'true;',
    test: 'unit/lake/failed-index.test.ts',
  },
  'an event that moves while it is looked for was never seen': {
    find: "if (backlogResult === 'purged' && (waiting.size === 0 || 'requestKey' in target)) return undefined;",
    replace: '',
    test: 'unit/event-lookup/find-event.test.ts',
  },
  'a change feed continues from a version that does not exist yet': {
    find: 'if (version > newest) throw',
    replace: 'if (false) throw',
    test: 'unit/lake/change-feed.test.ts',
  },
  'a change feed continues from a cursor of another history': {
    find: 'if (tag === undefined || tag === tagIn(point)) return;',
    replace: 'return;',
    test: 'unit/lake/change-feed.test.ts',
  },
  'rows that were erased are read again in an older version': {
    find: 'if (version < forgetBefore) return',
    replace: 'if (false) return',
    test: 'unit/lake/change-feed.test.ts',
  },
  'the last rows of a change feed come again': {
    find: 'events.available_at > make_timestamptz(CAST($since AS BIGINT))',
    replace: 'events.available_at >= make_timestamptz(CAST($since AS BIGINT))',
    test: 'unit/export/worker/selected-rows.test.ts',
  },
  'the watermark of one position is returned for another': {
    find: 'claim?.appId === epoch.appId && claim.position === epoch.position',
    replace: 'claim?.appId === epoch.appId',
    test: 'unit/lake/watermark.test.ts',
  },
  'a watermark of the future is returned': {
    find: 'watermarkMs === undefined || watermarkMs > clock.nowMs() ?',
    replace: 'watermarkMs === undefined ?',
    test: 'unit/lake/watermark.test.ts',
  },
  'a slot is made before its period is complete': {
    find: 'if (watermarkMs !== undefined) return watermarkMs >= untilMs;',
    replace: 'if (watermarkMs !== undefined) return true;',
    test: 'unit/export/schedules/completeness-gate.test.ts',
  },
  'a slot that was missed is made however old it is': {
    find: 'Math.max(firstSlot, newest - catchUp + 1)',
    replace: 'firstSlot',
    test: 'unit/schedules/completed-slots.test.ts',
  },
  'the slot of a week asks for one day': {
    find: "rule.every === 'week' ? day - 7 : day - 1",
    replace: 'day - 1',
    test: 'unit/schedules/recurrence.test.ts',
  },
  'a slot is ordered for a user of another account': {
    find: 'if (user?.idAccount !== idAccount)',
    replace: 'if (user === undefined)',
    test: 'unit/export/schedules/create-slot-export.test.ts',
  },
  'a user is new regardless of events before the period': {
    find: 'FROM seen ANTI JOIN earlier USING (id_app, subject)',
    replace: 'FROM seen',
    test: 'unit/export/worker/derived-query.test.ts',
  },
  'a user is known before the period by an event at its start': {
    find: 'AND first_seconds < CAST($spanFrom',
    replace: 'AND first_seconds <= CAST($spanFrom',
    test: 'unit/export/worker/first-seen.test.ts',
  },
  'a part is used for a version without a file that it covers': {
    find: 'covers.every((cover) => live.has(cover.hash) || !mayHoldApp(cover, idApps)),',
    replace: 'covers.some((cover) => live.has(cover.hash) || !mayHoldApp(cover, idApps)),',
    test: 'unit/lake/first-seen/plan-parts.test.ts',
  },
  'a pause of half an hour ends a session': {
    find: '<= ${pauseMicros} AS goes_on',
    replace: '< ${pauseMicros} AS goes_on',
    test: 'unit/export/worker/derived-query.test.ts',
  },
  'a session ends at the end of the first scan': {
    find: 'return unfinished === undefined || (await engine.run(unfinished, paths)) === 0;',
    replace: 'return true;',
    test: 'unit/export/worker/derived-query.test.ts',
  },
  'the rows of another app are repeats within a load': {
    find: 'PARTITION BY id_app, event_id ORDER BY part, row',
    replace: 'PARTITION BY event_id ORDER BY part, row',
    test: 'unit/admin/load/duplicates.test.ts',
  },
  'the rows of another app are repeats of what the table has': {
    find: 'AS known USING (id_app, event_id)',
    replace: 'AS known USING (event_id)',
    test: 'unit/admin/load/duplicates.test.ts',
  },
  'rows that were erased are loaded again': {
    find: 'FROM (${stagedSql(staged)}) WHERE ${isErasedSql(erasedIds)}',
    replace: 'FROM (${stagedSql(staged)}) WHERE false',
    test: 'unit/admin/load/duplicates.test.ts',
  },
  'the catalogue keeps the parts of a file that was erased': {
    find: 'if (wanted.has(key) && !owners.has(key))',
    replace: 'if (!owners.has(key))',
    test: 'unit/lake/catalogue/erased-files.test.ts',
  },
  'the catalogue keeps the notices of what was erased': {
    find: 'if (places.size < known.length)',
    replace: 'if (false)',
    test: 'unit/lake/catalogue/erased-files.test.ts',
  },
  'the rows of a file that was written again count twice': {
    find: '(!isBehind && !keys.has(shorten(partKey(file))))',
    replace: '!keys.has(shorten(partKey(file)))',
    test: 'unit/lake/catalogue/erased-files.test.ts',
  },
  'an erasure does not wait for the catalogue': {
    find: 'return folded.tableVersion >= version;',
    replace: 'return true;',
    test: 'unit/lake/catalogue/erased-files.test.ts',
  },
  'a receipt need not be signed': {
    find: 'if (!isSigned(receipt)) throw',
    replace: 'if (false) throw',
    test: 'unit/receipts/receipt.test.ts',
  },
  'a path to a root has steps that lead nowhere': {
    find: 'return used === path.length ? hash : undefined;',
    replace: 'return hash;',
    test: 'unit/receipts/merkle-tree.test.ts',
  },
  'a session remains valid after its sign-out': {
    find: 'const isSignedOut = startedSeconds <= ends.of(idUser);',
    replace: 'const isSignedOut = false;',
    test: 'unit/console/sessions.test.ts',
  },
  'the signature of a message leaves out its body': {
    find: '.update(`${id}.${timestamp}.${body}`)',
    replace: '.update(`${id}.${timestamp}`)',
    test: 'unit/export/notify/message.test.ts',
  },
  'a notice is sent to every account': {
    find: '.filter((one) => one.idAccount === idAccount)',
    replace: '',
    test: 'unit/export/notify/notice-notifier.test.ts',
  },
  'an account has the segments of all': {
    find: "ids(idAccount === undefined ? '' : `${idAccount}/`)",
    replace: "ids('')",
    test: 'unit/segments/segment-store.test.ts',
  },
  'the files of a commit that is in doubt are removed': {
    find: 'if (!(await isCommitted(table.dir, record.baseVersion, id))) await withdraw(objects, record);',
    replace: 'await withdraw(objects, record);',
    test: 'unit/lake/change.test.ts',
  },
  'what follows a commit is not done after a crash': {
    find: 'await follow(table, objects, record); await endRecord(objects);',
    replace: 'await endRecord(objects);',
    test: 'unit/lake/change.test.ts',
  },
  'a rewrite takes its place while readers use what is there': {
    find: "if (published === 'another' && isWaiting) continue;",
    replace: '',
    test: 'unit/lake/deferred-replacement.test.ts',
  },
  'a record is written over a change that came first': {
    find: "return result === 'exists' || result === 'conflict' ? 'again' : after;",
    replace: 'return after;',
    test: 'unit/runtime/store/records.test.ts',
  },
  'a record of another id is read': {
    find: '&& (kind.idOf === undefined || kind.idOf(document) === id)',
    replace: '',
    test: 'unit/runtime/store/records.test.ts',
  },
  'a batch reaches across the position of a follower': {
    find: '.filter((own) => own.appId === appId && own.position > position)',
    replace: '.filter((own) => own.appId === appId)',
    test: 'unit/compact/secondary-position.test.ts',
  },
  'a purge that failed is forgotten': {
    find: 'running.catch(() => undefined); if (failure !== undefined) throw failure.error;',
    replace: '',
    test: 'unit/compact/background-purge.test.ts',
  },
  'a batch is committed by keys that are not the newest': {
    find: 'if (classified.addsKeys && lake.keysCommit !== classified.keysSeen) throw',
    replace: 'if (false) throw',
    test: 'unit/compact/commit-fence.test.ts',
  },
};
