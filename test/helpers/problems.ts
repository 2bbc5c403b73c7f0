import { readFileSync } from 'node:fs';
import type { Problem } from '../../src/runtime/problems/problem.ts';
import type { TestService } from './service.ts';

/** Reads the operator's `/readyz`; undefined without a response. */
export async function readReadiness(
  service: TestService,
): Promise<{ readonly status: number; readonly problems: readonly Problem[] } | undefined> {
  const response = await fetch(`${service.ops}/readyz`).catch(() => undefined);
  const body = (await response?.json().catch(() => undefined)) as { problems: Problem[] } | undefined;
  return response === undefined || body === undefined
    ? undefined
    : { status: response.status, problems: body.problems };
}

/** Reads the problems of `tributary status`. */
export async function readStatusProblems(service: TestService): Promise<readonly Problem[]> {
  return ((await service.status())['problems'] ?? []) as Problem[];
}

/**
 * Reads the lines of the service's log, parsed; skips lines that are not JSON, such as the last words of a killed
 * process.
 */
export function readLog(service: TestService): Record<string, unknown>[] {
  return readFileSync(`${service.dataDir}.log`, 'utf8')
    .split('\n')
    .flatMap((line) => {
      try {
        return [JSON.parse(line) as Record<string, unknown>];
      } catch {
        return [];
      }
    });
}
