import type { AttemptEnd } from '../../reports/job-attempts.ts';
import type { ReportEnd } from '../../reports/reports.ts';
import type { AttemptOutcome } from './worker-process.ts';

/** What the outcome of an attempt means for its request. */
export interface Settlement {
  /** What the attempt counts as when it is taken back; absent: its folder becomes the request's files. */
  readonly release?: AttemptEnd;
  /** The end of the request; absent: it is tried again. */
  readonly end?: ReportEnd;
  /** A warning for the log. */
  readonly warning?: { readonly message: string; readonly error: string };
  /** What is damaged in the lake. */
  readonly damage?: string;
}

/** The attempt whose outcome is judged. */
export interface JudgedAttempt {
  /** Attempts of the request so far, this one included, those interrupted apart. */
  readonly attempts: number;
  /** Time since the request was created. */
  readonly ageMs: number;
  /** Wall-clock limit of an attempt. */
  readonly timeoutMs: number;
}

/** A request whose worker crashes or fails this often will never succeed. */
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
      // Damage does not pass: the next attempt would read the same bytes.
      return { release: 'failure', end: failed, damage: error };
    case 'disk': {
      // A full disk is not the request's fault: it is tried again, for as long as an attempt may take.
      const isOver = ageMs > timeoutMs || attempts >= maxAttempts;
      return { release: 'nothing', warning, ...(isOver ? { end: failed } : {}) };
    }
    case 'error':
      return { release: 'failure', warning, ...(attempts >= maxAttempts ? { end: failed } : {}) };
    default:
      return reason satisfies never;
  }
}

/** Judges the outcome of an attempt: is the request over, and what does the attempt count as? Changes nothing. */
export function judgeOutcome(outcome: AttemptOutcome, attempt: JudgedAttempt): Settlement {
  switch (outcome.kind) {
    case 'done':
      return { end: { state: 'success', files: outcome.files, basis: outcome.basis } };
    case 'aborted':
      // By a stop, after which nothing is tried, or by a change of access: then it begins anew.
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
