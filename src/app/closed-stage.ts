import assert from 'node:assert/strict';
import type { Problem } from '../runtime/conditions/problem.ts';
import type { Stage } from '../runtime/processes/role-process.ts';
import type { Role } from '../service/service-options.ts';
import { openHealth, type Parts } from './stage-parts.ts';

/** Answers for a role whose folders are not the service's own any more: nothing of them is read or written. */
export async function startClosedStage(role: Role, { config, logger, closed = '' }: Parts): Promise<Stage> {
  assert(role !== 'compact', 'there is nobody whom a closed compactor could answer');
  const { addRoutes, onService } = await openHealth();
  const { host } = config;
  const stage =
    role === 'ingest'
      ? await (await import('../ingest/server.ts')).startClosedIngest({ host, port: config.s2sPort }, addRoutes, logger)
      : await (
          await import('../export/api/server.ts')
        ).startClosedExport({ host, port: config.apiPort }, addRoutes, logger);
  const facts = (): { readonly problems: readonly Problem[] } => ({
    problems: [
      {
        code: 'role_closed',
        subject: role,
        what: `${role} refuses every request: ${closed}`,
        todo: 'Resolve that problem, which is listed too: the process is then started again by itself.',
      },
    ],
  });
  return { ...stage, facts, onService };
}
