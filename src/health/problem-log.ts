import type { Logger } from '../runtime/logger.ts';
import { type Problem, problemKey } from '../runtime/conditions/problem.ts';

/** When each thing that holds now was first found, ISO 8601, by its key (problem.ts). */
export type SinceByKey = Readonly<Record<string, string>>;

/**
 * Remembers since when problems and notices hold, and logs problems: one line when one begins and one when it is
 * resolved, however often it is found in between.
 */
export interface ProblemLog {
  /** Takes what holds now; returns since when. */
  update(problems: readonly Problem[], notices?: readonly Problem[]): SinceByKey;
}

/** Creates the log. A problem is known again by its code and subject: what is wrong may carry figures that change. */
export function createProblemLog(logger: Logger, nowMs: () => number): ProblemLog {
  let logged: ReadonlyMap<string, Problem> = new Map();
  let since: SinceByKey = {};
  return {
    update(problems, notices = []) {
      const now = new Map(problems.map((problem) => [problemKey(problem), problem]));
      const at = new Date(nowMs()).toISOString();
      const before = since;
      since = Object.fromEntries([...problems, ...notices].map(problemKey).map((key) => [key, before[key] ?? at]));
      for (const [key, problem] of now) if (!logged.has(key)) logger.error({ ...problem }, 'problem');
      for (const [key, { code, subject, what }] of logged)
        if (!now.has(key)) logger.info({ code, subject, what, since: before[key] }, 'problem resolved');
      logged = now;
      return since;
    },
  };
}
