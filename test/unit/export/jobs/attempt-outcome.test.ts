import { expect, it } from 'vitest';
import { settleAttempt, type FinishedAttempt, type AttemptDecision } from '../../../../src/export/jobs/attempts.ts';
import type { AttemptOutcome } from '../../../../src/export/jobs/worker-process.ts';

const first: FinishedAttempt = { attempts: 1, ageMs: 100, timeoutMs: 1000 };
const eighth: FinishedAttempt = { ...first, attempts: 8 };
const old: FinishedAttempt = { ...first, ageMs: 1001 };
const failed = (reason: 'user' | 'disk' | 'damage' | 'error'): AttemptOutcome => ({
  kind: 'failed',
  reason,
  error: 'e',
});
const basis = { version: 1, nextSinceVersion: '1', keptUntilSeconds: 2 };
const end = { state: 'failed', error: 'e' } as const;
const warning = { message: 'export attempt failed', error: 'e' };

it.each<[string, AttemptOutcome, FinishedAttempt, AttemptDecision]>([
  [
    'a result ends the request with its files',
    { kind: 'done', files: [], basis, filesRead: 1 },
    first,
    { end: { state: 'success', files: [], basis } },
  ],
  ['an aborted attempt does not count', { kind: 'aborted' }, eighth, { release: 'nothing' }],
  [
    'a kill from outside is an interruption after any number of attempts',
    { kind: 'killed', error: 'e' },
    eighth,
    { release: 'interruption', warning: { message: 'export attempt was interrupted', error: 'e' } },
  ],
  [
    'an attempt that took too long ends the request',
    { kind: 'timed_out' },
    first,
    { release: 'failure', end: { state: 'failed', error: 'the export took longer than 1000 ms' } },
  ],
  ['a crash is retried', { kind: 'crashed', error: 'e' }, first, { release: 'failure', warning }],
  ['the last crash ends the request', { kind: 'crashed', error: 'e' }, eighth, { release: 'failure', warning, end }],
  ['a failure is retried at any age', failed('error'), old, { release: 'failure', warning }],
  [
    'a limit of the request ends it in the error of its user, at once',
    failed('user'),
    first,
    { release: 'failure', end: { state: 'user_failed', error: 'e' } },
  ],
  ['damage ends the request at once', failed('damage'), first, { release: 'failure', end, damage: 'e' }],
  ['a full disk is retried and does not count', failed('disk'), first, { release: 'nothing', warning }],
  ['a full disk ends the request once it is too old', failed('disk'), old, { release: 'nothing', warning, end }],
])('The attempt is settled by its outcome: %s', (_, outcome, attempt, attemptDecision) => {
  expect(settleAttempt(outcome, attempt)).toEqual(attemptDecision);
});
