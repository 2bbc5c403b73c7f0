import type { AttemptEnd } from '../../reports/job-attempts.ts';
import type { ReportEnd } from '../../reports/reports.ts';
import type { AttemptOutcome } from './worker-process.ts';

/** The consequence of an outcome for its request. */
export interface Settlement {
  /** How the attempt counts; absent: its folder becomes the request's files. */
  readonly release?: AttemptEnd;
  /** Absent: it is retried. */
  readonly end?: ReportEnd;
  readonly warning?: { readonly message: string; readonly error: string };
  /** Damage of the lake. */
  readonly damage?: string;
}

export interface JudgedAttempt {
  /** Attempts of the request, this one included, interrupted ones excluded. */
  readonly attempts: number;
  /** Time since the creation of the request. */
  readonly ageMs: number;
  /** Timeout of an attempt. */
  readonly timeoutMs: number;
}

/** Attempts of a request whose worker crashes or fails. */
export const maxAttempts = 8;

function judgeFailure(
  reason: 'user' | 'disk' | 'damage' | 'error',
  error: string,
  { attempts, ageMs, timeoutMs }: JudgedAttempt,
): Settlement {
  const failed: ReportEnd = { state: 'failed', error };
  const warning = { message: 'export attempt failed', error };
  switch (reason) {
    case 'user':
      return { release: 'failure', end: { state: 'user_failed', error } };
    case 'damage':
      // The next attempt would read the same bytes.
      return { release: 'failure', end: failed, damage: error };
    case 'disk': {
      // The request is retried for as long as an attempt may take.
      const isOver = ageMs > timeoutMs || attempts >= maxAttempts;
      return { release: 'nothing', warning, ...(isOver ? { end: failed } : {}) };
    }
    case 'error':
      return { release: 'failure', warning, ...(attempts >= maxAttempts ? { end: failed } : {}) };
    default:
      return reason satisfies never;
  }
}

/** Decides by the outcome of an attempt whether the request has ended, and what the attempt counts as. */
export function judgeOutcome(outcome: AttemptOutcome, attempt: JudgedAttempt): Settlement {
  switch (outcome.kind) {
    case 'done':
      return { end: { state: 'success', files: outcome.files, basis: outcome.basis } };
    case 'aborted':
      // Stopped, or restarted after a change of access.
      return { release: 'nothing' };
    case 'killed':
      return {
        release: 'interruption',
        warning: { message: 'export attempt was interrupted', error: outcome.error },
      };
    case 'timed_out':
      return {
        release: 'failure',
        end: { state: 'failed', error: `the export took longer than ${attempt.timeoutMs} ms` },
      };
    case 'crashed':
      return judgeFailure('error', outcome.error, attempt);
    case 'failed':
      return judgeFailure(outcome.reason, outcome.error, attempt);
    default:
      return outcome satisfies never;
  }
}
