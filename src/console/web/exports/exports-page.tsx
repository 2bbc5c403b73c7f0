import type { ComponentType } from 'preact';
import { hrefOf, path } from '../frame/router.ts';
import { RequestList } from './request-list.tsx';
import { ScheduleList } from './schedule-list.tsx';
import { WebhookList } from './webhook-list.tsx';

const parts: readonly { readonly path: string; readonly title: string; readonly component: ComponentType }[] = [
  { path: 'exports', title: 'Requests', component: RequestList },
  { path: 'exports/schedules', title: 'Schedules', component: ScheduleList },
  { path: 'exports/webhooks', title: 'Webhooks', component: WebhookList },
];

/** What the user has ordered, and what is ordered again and again. */
export function ExportsPage() {
  const shown = parts.find((part) => part.path === path.value) ?? parts[0];
  const Part = shown?.component ?? RequestList;
  return (
    <>
      <div class="page-head">
        <h1 tabIndex={-1}>Exports</h1>
        <nav class="tabs" aria-label="Parts of the page">
          {parts.map((part) => (
            <a key={part.path} href={hrefOf(part.path)} aria-current={part === shown ? 'page' : undefined}>
              {part.title}
            </a>
          ))}
        </nav>
      </div>
      <Part />
    </>
  );
}
