import { PageParts } from '../parts/page-parts.tsx';
import { RequestList } from './request-list.tsx';
import { ScheduleList } from './schedule-list.tsx';
import { WebhookList } from './webhook-list.tsx';

/** What the user has ordered, and what is ordered again and again. */
export function ExportsPage() {
  return (
    <PageParts
      title="Exports"
      parts={[
        { path: 'exports', title: 'Requests', component: RequestList },
        { path: 'exports/schedules', title: 'Schedules', component: ScheduleList },
        { path: 'exports/webhooks', title: 'Webhooks', component: WebhookList },
      ]}
    />
  );
}
