import { closeSync, openSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { isSystemError } from '../errors.ts';
import type { Problem } from '../conditions/problem.ts';

/**
 * Detects that a process has no file descriptor left: the kernel then takes its new connections and they are closed at
 * once.
 */
export interface DescriptorWatch {
  /** Tries to open a file; what is wrong, now or a moment ago. */
  problems(): readonly Problem[];
}

/**
 * A flood takes each descriptor that comes free: what was found holds for so long, or the problem would come and go.
 */
const heldMs = 5000;
const file = fileURLToPath(import.meta.url);

function isExhausted(): boolean {
  try {
    closeSync(openSync(file, 'r'));
    return false;
  } catch (error) {
    // Anything else is about the file, not about descriptors.
    return isSystemError(error, 'EMFILE', 'ENFILE');
  }
}

/** Creates the watch of this process, which `who` names to the operator. */
export function createDescriptorWatch(who: string): DescriptorWatch {
  let exhaustedMs = Number.NEGATIVE_INFINITY;
  const problem: Problem = {
    code: 'descriptors_exhausted',
    subject: who,
    what: `${who} has no file descriptor left: it refuses new connections`,
    todo: 'End the clients that hold so many connections, or raise the limit on open files (ulimit -n) and start again; it goes on by itself as soon as there is room.',
  };
  return {
    problems() {
      if (isExhausted()) exhaustedMs = performance.now();
      return performance.now() - exhaustedMs < heldMs ? [problem] : [];
    },
  };
}
