import type { Logger } from '../runtime/logger.ts';
import type { Problem } from '../runtime/conditions/problem.ts';

/** When each thing that holds now was first found, ISO 8601, by its next step. */
export type SinceByTodo = Readonly<Record<string, string>>;

/**
 * Remembers since when problems and notices hold, and logs problems: one line when one begins and one when it is
 * resolved, however often it is found in between.
 */
export interface ProblemLog {
  /** Takes what holds now; returns since when. */
  update(problems: readonly Problem[], notices?: readonly Problem[]): SinceByTodo;
}

/** Creates the log. A problem is known again by its next step: what is wrong may carry figures that change. */
export function createProblemLog(logger: Logger, nowMs: () => number): ProblemLog {
  let logged: ReadonlyMap<string, Problem> = new Map();
  let since: SinceByTodo = {};
  return {
    update(problems, notices = []) {
      const now = new Map(problems.map((problem) => [problem.todo, problem]));
      const at = new Date(nowMs()).toISOString();
      const before = since;
      since = Object.fromEntries([...problems, ...notices].map(({ todo }) => [todo, before[todo] ?? at]));
      for (const [todo, problem] of now) if (!logged.has(todo)) logger.error({ ...problem }, 'problem');
      for (const [todo, { what }] of logged)
        if (!now.has(todo)) logger.info({ what, since: before[todo] }, 'problem resolved');
      logged = now;
      return since;
    },
  };
}
