import type { AccessReader, User } from '../../access/access.ts';
import type { Schedule } from '../../schedules/schedules.ts';
import { isRefusal } from '../api/envelope.ts';
import type { ParseRequest } from '../api/request-rules.ts';
import { selectApps, type ExportSpec } from '../jobs/export-spec.ts';
import { argumentsOfSlot } from './schedule-arguments.ts';
import { createSlotWait, type SlotWaitDependencies } from './slot-wait.ts';

/**
 * What a slot's export is ordered with; why it cannot be; or `later` where that is not known now, or its period is not
 * complete in the lake yet.
 */
export type Order =
  | {
      readonly user: User;
      readonly request: ExportSpec;
      /** Events that were acknowledged before the end of its period may be missing: it has waited long enough. */
      readonly isOverdue: boolean;
    }
  | { readonly reason: string }
  | 'later';

/**
 * Says why a request may not be made for an app any more; undefined: it may. A request that names apps has rows of none
 * once the account has none of them; one that names none has those of whichever apps there are.
 */
export function refuseApps(access: AccessReader, idAccount: number, request: ExportSpec): string | undefined {
  const namesApps = request.idApp !== undefined || request.SDKKey !== undefined;
  if (!namesApps || selectApps(request, access.current().appsOfAccount(idAccount)).length > 0) return undefined;
  return 'the account has none of the apps that it names';
}

export interface OrderDependencies extends SlotWaitDependencies {
  readonly parseRequest: ParseRequest;
  readonly access: AccessReader;
}

/**
 * Creates what orders a slot's export for the user of its schedule, as that user may order it now. `place`: what a change
 * feed goes on from, where it has come to one.
 */
export function createOrders(
  dependencies: OrderDependencies,
): (schedule: Schedule, slot: number, place: string | undefined, nowMs: number) => Promise<Order> {
  const { parseRequest, access } = dependencies;
  const findReadiness = createSlotWait(dependencies);
  return async (schedule, slot, place, nowMs) => {
    const { idAccount, idUser } = schedule;
    const user = access.current().findUser(idUser);
    if (user?.idAccount !== idAccount)
      return access.mayLackUsers() ? 'later' : { reason: `user ${idUser} was removed` };
    if (!user.canExport) return { reason: `user ${idUser} lacks export permissions` };
    const request = await parseRequest(idAccount, argumentsOfSlot(schedule, slot, place), nowMs);
    if (isRefusal(request)) return { reason: request.detail ?? 'its export is refused' };
    const reason = refuseApps(access, idAccount, request);
    if (reason !== undefined) return access.mayLackApps() ? 'later' : { reason };
    const readiness = await findReadiness(schedule, slot, request);
    return readiness === 'waits' ? 'later' : { user, request, isOverdue: readiness === 'overdue' };
  };
}
