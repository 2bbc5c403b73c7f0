/**
 * Checks that no test noticed when they were taken out, and the test that notices now. Each is short enough to run
 * often. A mutant names a text of the sources, wherever it stands, so that it survives a move of the file; it has to
 * stand there once.
 */
export interface Mutant {
  readonly find: string;
  readonly replace: string;
  /** The test that must fail, relative to `test/`. */
  readonly test: string;
}

/** The mutants by what is then missing. */
export const mutants: Readonly<Record<string, Mutant>> = {
  'a flush is committed wherever the position stands': {
    find: 'state.txns.get(epoch.appId) !== epoch.position',
    replace: 'false',
    test: 'unit/compact/commit-fence.test.ts',
  },
  'the word of whose the stream is holds for ever': {
    find: 'if (isStale && dependencies.assertStreamOwner !== undefined)',
    replace: 'if (false)',
    test: 'unit/compact/commit-fence.test.ts',
  },
  'a flush is committed into whatever epoch': {
    find: 'lake.epoch?.appId !== epoch.appId ||',
    replace: '',
    test: 'unit/compact/commit-fence.test.ts',
  },
  'available times are committed in any order': {
    find: 'if (lake.availableAtMs !== before) throw',
    replace: 'if (false) throw',
    test: 'unit/compact/commit-fence.test.ts',
  },
  'the stream is not looked at again before a flush': {
    find: 'if (!(await isStillWhole(reader, epoch, fault, batch))) return false;',
    replace: '',
    test: 'unit/compact/commit-fence.test.ts',
  },
  'a compactor that has lost the lake seals on': {
    find: 'assertOwner(table.lake(), writer);\n      return sealDue(',
    replace: 'return sealDue(',
    test: 'unit/compact/commit-fence.test.ts',
  },
  'the rows that a seal wrote are not counted': {
    find: 'if (countRows(outputs) !== rowsIn) {',
    replace: 'if (false) {',
    test: 'unit/compact/seal-fence.test.ts',
  },
  'a rewrite is committed although its files are gone from the table': {
    find: "if (gone !== undefined) throw new AppError('log_damaged', `${gone.remove?.path}",
    replace: "if (false) throw new AppError('log_damaged', `${gone?.remove?.path}",
    test: 'unit/compact/seal-fence.test.ts',
  },
  'a request is found from another account': {
    find: 'job.idAccount !== user.idAccount ||',
    replace: '',
    test: 'unit/export/api/exports.test.ts',
  },
  'a list has requests of another account': {
    find: 'job.idUser === user.idUser && job.idAccount === user.idAccount',
    replace: 'job.idUser === user.idUser',
    test: 'unit/export/api/exports.test.ts',
  },
  'another account takes the room of this one': {
    find: 'store.inProgress().filter((job) => job.idAccount === user.idAccount)',
    replace: 'store.inProgress()',
    test: 'unit/export/api/exports.test.ts',
  },
  'a publish group grows without a bound': {
    find: '(bytes += lines.length) <= maxMessageBytes',
    replace: '(bytes += lines.length) <= Infinity',
    test: 'unit/ingest/group-commit.test.ts',
  },
  'the waiting room has no bound': {
    find: 'waitingBytes + lines.length > options.maxWaitingBytes',
    replace: 'false',
    test: 'unit/ingest/group-commit.test.ts',
  },
};
