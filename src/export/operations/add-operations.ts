import type { Clock } from '../../runtime/clock.ts';
import type { Logger } from '../../runtime/logger.ts';
import type { AddMethod } from '../api/methods-routes.ts';
import { addAppChanges } from './app-changes.ts';
import type { Operations } from './operations.ts';
import { createOperatorMethods } from './operator-methods.ts';
import { addUserChanges } from './user-changes.ts';

/** Adds what operators do by the export area. */
export function addOperations(
  addMethod: AddMethod,
  { paths, readStatus }: Operations,
  { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
): void {
  const methods = createOperatorMethods(addMethod, logger.child({ stage: 'operations' }));
  methods.look('/api/operations/v1/status.json', 'operations_status', [], () => readStatus());
  addAppChanges(methods, paths, clock);
  addUserChanges(methods, paths);
}
