import { isRefusal, type Refusal } from '../api/envelope.ts';
import { single, type AddMethod, type Answer } from '../api/methods-routes.ts';
import type { AccountSchedules } from './account-schedules.ts';
import type { ScheduleView } from './schedule-views.ts';

const notFound: Refusal = { code: 404, detail: 'The schedule is not found' };

function answer(view: ScheduleView | Refusal | undefined): Answer {
  if (view === undefined) return notFound;
  return isRefusal(view) ? view : { data: view };
}

/** Adds the methods by which users change the schedules of their account. */
export function addScheduleRoutes(addMethod: AddMethod, schedules: AccountSchedules): void {
  addMethod(['POST'], '/api/schedule/v1/create.json', 'schedule_create', async (user, given) =>
    answer(await schedules.create(user, given)),
  );

  addMethod(['GET'], '/api/schedule/v1/list.json', 'schedule_list', async ({ idAccount }) => {
    const { schedules: listed, damaged } = await schedules.list(idAccount);
    return { data: { schedules: listed, ...(damaged.length === 0 ? {} : { damaged }) } };
  });

  addMethod(['GET'], '/api/schedule/v1/get.json', 'schedule_get', async ({ idAccount }, given) =>
    answer(await schedules.find(idAccount, single(given, 'idSchedule') ?? '')),
  );

  for (const verb of ['pause', 'resume'] as const)
    addMethod(['POST'], `/api/schedule/v1/${verb}.json`, `schedule_${verb}`, async ({ idAccount }, given) =>
      answer(await schedules[verb](idAccount, single(given, 'idSchedule') ?? '')),
    );

  addMethod(['POST'], '/api/schedule/v1/delete.json', 'schedule_delete', async ({ idAccount }, given) => {
    const idSchedule = single(given, 'idSchedule') ?? '';
    return (await schedules.remove(idAccount, idSchedule)) ? { data: { idSchedule } } : notFound;
  });
}
