import type { Logger } from '../runtime/logger.ts';
import type { Problem } from '../runtime/problem.ts';

/** Tells the log of problems: one line when one begins and one when it is over, however often it is found in between. */
export interface ProblemLog {
  /** Takes the problems that hold now. */
  update(problems: readonly Problem[]): void;
}

/** Creates the log. A problem is known again by its next step: what is wrong may carry figures that change. */
export function createProblemLog(logger: Logger): ProblemLog {
  let told: ReadonlyMap<string, Problem> = new Map();
  return {
    update(problems) {
      const now = new Map(problems.map((problem) => [problem.todo, problem]));
      for (const [todo, problem] of now) if (!told.has(todo)) logger.error({ ...problem }, 'problem');
      for (const [todo, { what }] of told) if (!now.has(todo)) logger.info({ what }, 'problem is over');
      told = now;
    },
  };
}
