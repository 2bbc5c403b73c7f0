import type { ZoneDays } from '../api/calendar.ts';
import {
  createAccountSchedules,
  type AccountScheduleDependencies,
  type AccountSchedules,
} from './account-schedules.ts';
import { createSlotClock } from './slot-clock.ts';
import { startSlotRunner, type SlotRunner, type SlotRunnerDependencies } from './slot-runner.ts';

export type ScheduleDependencies = Omit<AccountScheduleDependencies & SlotRunnerDependencies, 'slotClock'> & {
  readonly zoneDays: ZoneDays;
};

/** What users do with the schedules of a folder, and what makes their exports. */
export interface Schedules {
  readonly ofAccounts: AccountSchedules;
  readonly runner: SlotRunner;
}

/** Starts the schedules, until their runner is stopped. */
export function startSchedules(dependencies: ScheduleDependencies): Schedules {
  const parts = { ...dependencies, slotClock: createSlotClock(dependencies.zoneDays) };
  return { ofAccounts: createAccountSchedules(parts), runner: startSlotRunner(parts) };
}
